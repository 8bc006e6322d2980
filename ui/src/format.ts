// Numbers, times and sizes for people: in the viewer's zone, or in UTC where they chose that.
import { signal } from "@preact/signals";
import { language, t } from "./i18n";
import { keep, kept } from "./store";

export const utc = signal(kept("utc", false));
/** The present time (ms), refreshed each ten seconds: relative times follow it. */
export const now = signal(Date.now());
let ahead = 0;
setInterval(() => (now.value = Date.now() + ahead), 10_000);

/** Take the server's clock for the present where it differs from the viewer's by more than some seconds. */
export function setClock(serverMs: number): void {
  const difference = serverMs - Date.now();
  if (Math.abs(difference - ahead) > 5_000) {
    ahead = Math.abs(difference) > 5_000 ? difference : 0;
    now.value = Date.now() + ahead;
  }
}

export function setUtc(on: boolean): void {
  utc.value = on;
  keep("utc", on);
}

const formats = new Map<string, Intl.DateTimeFormat>(); // making one costs more than using it a hundred times

function formatted(ms: number, how: Intl.DateTimeFormatOptions): string {
  const key = language.value + utc.value + JSON.stringify(how);
  let format = formats.get(key);
  if (!format) {
    format = new Intl.DateTimeFormat(language.value, { ...how, hourCycle: "h23", ...(utc.value ? { timeZone: "UTC" } : {}) });
    formats.set(key, format);
  }
  return format.format(ms);
}

/** Day and time to the minute; a dash for a time that has not come. */
export function time(ms: number): string {
  if (!ms) return "–";
  const far = Math.abs(ms - now.value) > 300 * 86_400_000;
  return formatted(ms, { ...(far ? { year: "numeric" } : {}), month: "short", day: "numeric", hour: "2-digit", minute: "2-digit" });
}

export function clock(ms: number): string {
  return formatted(ms, { hour: "2-digit", minute: "2-digit", second: "2-digit" });
}

/** Texts of marks along a time axis, `stepS` apart: the day where it changes, beneath the time of day. */
export function marks(seconds: number[], stepS: number): string[] {
  let before = "";
  return seconds.map((second) => {
    const day = formatted(second * 1000, { month: "short", day: "numeric" });
    const text = stepS >= 86_400 ? day : formatted(second * 1000, { hour: "2-digit", minute: "2-digit", ...(stepS < 60 ? { second: "2-digit" } : {}) });
    const shown = stepS >= 86_400 || day === before ? text : `${text}\n${day}`;
    before = day;
    return shown;
  });
}

/** The whole time with its zone, for tooltips. */
export function iso(ms: number): string {
  if (!ms) return "";
  return utc.value ? new Date(ms).toISOString() : formatted(ms, { dateStyle: "full", timeStyle: "long" } as Intl.DateTimeFormatOptions);
}

const STEPS: [number, Intl.RelativeTimeFormatUnit][] = [[86_400_000, "day"], [3_600_000, "hour"], [60_000, "minute"], [1_000, "second"]];

/** How long ago, or in how long. */
export function ago(ms: number): string {
  if (!ms) return "–";
  const away = ms - now.value;
  for (const [size, unit] of STEPS) {
    if (Math.abs(away) >= size || unit === "second") {
      return new Intl.RelativeTimeFormat(language.value, { numeric: "auto", style: "short" }).format(Math.round(away / size), unit);
    }
  }
  return "";
}

/** A length of time, such as `1d 4h` or `12m 30s`. */
export function span(ms: number): string {
  const s = Math.max(0, Math.round(ms / 1000));
  const [d, h, m] = [Math.floor(s / 86_400), Math.floor((s % 86_400) / 3600), Math.floor((s % 3600) / 60)];
  if (d) return h ? `${d}d ${h}h` : `${d}d`;
  if (h) return m ? `${h}h ${m}m` : `${h}h`;
  if (m) return s % 60 ? `${m}m ${s % 60}s` : `${m}m`;
  return `${s}s`;
}

export function number(value: number, digits = 0): string {
  return value.toLocaleString(language.value, { maximumFractionDigits: digits });
}

export function percent(part: number, whole: number): string {
  return whole ? `${Math.round((part / whole) * 100)} %` : "–";
}

export function bytes(size: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let at = 0;
  while (size >= 1024 && at < units.length - 1) {
    size /= 1024;
    at += 1;
  }
  return `${number(size, size < 10 && at ? 1 : 0)} ${units[at]}`;
}

/** An amount of a resource as quotas count it: devices and CPUs in thousandths, memory and storage in bytes. */
export function amount(value: number, resource: string): string {
  return /memory|storage/.test(resource) ? bytes(value) : number(value / 1000, 2);
}

/** An amount in the smallest unit of a currency. */
export function money(amount: number, currency: string, digits: number): string {
  const value = amount / 10 ** digits;
  try {
    return value.toLocaleString(language.value, { style: "currency", currency, minimumFractionDigits: digits, maximumFractionDigits: digits });
  } catch {
    return `${value.toFixed(digits)} ${currency || t("money.units")}`;
  }
}

/** Hours of devices, from milli-devices times milliseconds. */
/** An energy in the unit that suits it, of millijoules: `12 Wh`, `1.25 kWh`. */
export function energy(mj: number): string {
  const wattHours = mj / 3_600_000;
  return wattHours < 1000 ? `${number(wattHours, wattHours < 10 ? 2 : 0)} Wh` : `${number(wattHours / 1000, 2)} kWh`;
}

export function deviceHours(milliMs: number): string {
  const hours = milliMs / 3_600_000_000;
  return number(hours, hours < 10 ? 2 : hours < 1000 ? 1 : 0);
}
