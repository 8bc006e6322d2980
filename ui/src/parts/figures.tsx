// What a node's devices report at present: use, memory, temperature, power; one of them with the curves of its last hour.
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { get } from "../api/client";
import type { DeviceCurve, DeviceList, DeviceRow } from "../api/types.gen";
import { useGet } from "../api/use";
import { bytes, number } from "../format";
import { t } from "../i18n";
import { Bar } from "./basics";
import { colour, dark } from "../theme";
import { Curve } from "./charts";
import { between, type Measured, type Reported } from "./devicemap";

const EVERY_MS = 5_000;

/** Figures come by themselves, without an event: ask again while the page is in sight. */
function useEvery(reload: () => unknown): void {
  useEffect(() => {
    const timer = setInterval(() => document.hidden || void reload(), EVERY_MS);
    return () => clearInterval(timer);
  }, [reload]);
}

const MAP_EVERY_MS = 15_000;
const MAP_PAGE = 1_000;
const MAP_MOST = 10_000;
const MAP_FIELDS = "id,use_milli,temperature_c,power_mw,power_limit_mw";

/** What all devices report, for a map of them; asked for while `on`. */
export function useReported(on: boolean): Reported {
  const [reported, set] = useState<Reported>(new Map());
  useEffect(() => {
    if (!on) return;
    const own = new AbortController();
    const load = async () => {
      const found: Reported = new Map();
      let cursor = "";
      do {
        const page: DeviceList = await get<DeviceList>("/devices", { measured: "true", limit: MAP_PAGE, fields: MAP_FIELDS, cursor }, own.signal);
        for (const row of page.devices) found.set(row.id, row);
        cursor = page.next_cursor;
      } while (cursor && found.size < MAP_MOST);
      set(found);
    };
    const again = () => void load().catch(() => undefined); // the next turn asks again
    again();
    const timer = setInterval(() => document.hidden || again(), MAP_EVERY_MS);
    return () => {
      own.abort();
      clearInterval(timer);
    };
  }, [on]);
  return reported;
}

/** The colours of a map by what devices report. */
export function Scale(props: { by: Measured }) {
  const steps = [0, 0.25, 0.5, 0.75, 1];
  return (
    <p class="legend">
      <span>{t(`figures.low_${props.by}`)}</span>
      <span class="scale" aria-hidden="true">{steps.map((share) => <Step key={share} by={props.by} share={share} />)}</span>
      <span>{t(`figures.high_${props.by}`)}</span>
      <span><span class="swatch piece-closed" aria-hidden="true" /> {t("figures.none")}</span>
    </p>
  );
}

function Step(props: { by: Measured; share: number }) {
  const ref = useRef<HTMLSpanElement>(null);
  useLayoutEffect(() => {
    if (ref.current) ref.current.style.background = between(colour("--free"), colour(props.by === "heat" ? "--unhealthy" : "--used"), props.share);
  }, [props.by, props.share, dark.value]);
  return <span class="swatch" ref={ref} />;
}

const watts = (mw: number) => `${number(Math.round(mw / 1000))} W`;
const shown = (value: number | null | undefined, text: (value: number) => string) => (value === null || value === undefined ? "–" : text(value));

export function Figures(props: { node: string }) {
  const list = useGet<DeviceList>("/devices", { node: props.node, measured: "true" });
  const [at, setAt] = useState<number | null>(null);
  useEvery(list.refresh);
  const devices = list.value?.devices ?? [];
  const notes = list.value?.notes?.[props.node] ?? [];
  if (!devices.length && !notes.length) return null;
  return (
    <section aria-label={t("figures.title")}>
      <h3>{t("figures.title")}</h3>
      {notes.map((note) => <p key={note} class="faint">{note}</p>)}
      <table class="plain">
        <thead><tr><th scope="col" class="number">#</th><th scope="col">{t("figures.use")}</th><th scope="col" class="number">{t("figures.memory")}</th><th scope="col" class="number">{t("figures.temperature")}</th><th scope="col" class="number">{t("figures.power")}</th></tr></thead>
        <tbody>{devices.map((row) => <Row key={row.id} of={row} open={at === row.index} onOpen={() => setAt(at === row.index ? null : row.index)} />)}</tbody>
      </table>
      {at === null ? null : <Hour key={at} node={props.node} index={at} />}
    </section>
  );
}

function Row(props: { of: DeviceRow; open: boolean; onOpen: () => void }) {
  const { of } = props;
  const use = of.use_milli ?? null;
  return (
    <tr>
      <td class="number"><button type="button" class="link" aria-expanded={props.open} aria-label={t("figures.hour_of", { n: of.index })} onClick={props.onOpen}>{of.index}</button></td>
      <td>{use === null ? "–" : <><Bar label={t("figures.use")} whole={1000} parts={[{ kind: "used", value: use, label: t("figures.use") }]} /> <span class="faint">{`${Math.round(use / 10)} %`}</span></>}</td>
      <td class="number" title={bytes(of.memory_bytes)}>{shown(of.memory_used_bytes, bytes)}</td>
      <td class="number">{shown(of.temperature_c, (value) => `${value} °C`)}</td>
      <td class="number" title={of.throttled?.length ? t("figures.throttled", { why: of.throttled.join(", ") }) : ""}>{shown(of.power_mw, watts)}{of.throttled?.length ? <span aria-hidden="true"> ▾</span> : null}</td>
    </tr>
  );
}

function Hour(props: { node: string; index: number }) {
  const hour = useGet<DeviceCurve>(`/nodes/${encodeURIComponent(props.node)}/devices/${props.index}`);
  useEvery(hour.refresh);
  const of = hour.value;
  if (!of) return null;
  if (!of.from_ms.length) return <p class="faint">{t("figures.no_hour")}</p>;
  const use = of.use_milli.map((value) => (value === null ? null : value / 10));
  const power = of.power_mw.map((value) => (value === null ? null : value / 1000));
  return (
    <>
      <h4>{t("figures.hour_of", { n: props.index })}</h4>
      <Curve label={t("figures.use")} unit="%" height={110} times={of.from_ms} lines={[{ name: t("figures.use"), values: use, fill: true }]} />
      {power.some((value) => value !== null) ? <Curve label={t("figures.power")} unit="W" height={110} times={of.from_ms} lines={[{ name: t("figures.power"), values: power }]} /> : null}
    </>
  );
}
