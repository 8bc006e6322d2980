// Curves by uPlot, loaded by the pages that draw; colours of the theme, values under the pointer, a table for readers.
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import type uPlot from "uplot";
import { utc } from "../format";
import { language, t } from "../i18n";
import { colour, dark } from "../theme";

export type Line = { name: string; values: (number | null)[]; colour?: string; fill?: boolean; dash?: number[] };
export const PALETTE = ["--c1", "--c2", "--c3", "--c4", "--c5", "--c6", "--c7", "--c8"];

/** Lines over time: `times` in ms. */
export function Curve(props: { times: number[]; lines: Line[]; height?: number; label: string; unit?: string; stacked?: boolean; format?: (value: number) => string }) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  useEffect(() => {
    let gone = false;
    const watch = new ResizeObserver(() => {
      if (plot.current && box.current) plot.current.setSize({ width: box.current.clientWidth, height: props.height ?? 180 });
    });
    void import("uplot").then(({ default: Plot }) => {
      if (gone || !box.current) return;
      plot.current?.destroy();
      plot.current = new Plot(options(Plot, props, box.current.clientWidth), data(props), box.current);
      watch.observe(box.current);
    });
    return () => {
      gone = true;
      watch.disconnect();
      plot.current?.destroy();
      plot.current = null;
    };
  }, [props.lines.map((line) => line.name).join("\n"), dark.value, language.value, utc.value, props.height]);
  useEffect(() => {
    plot.current?.setData(data(props));
  }, [props.times, props.lines]);
  const last = props.lines.map((line) => `${line.name}: ${line.values.findLast((value) => value !== null) ?? "–"}`).join(", ");
  return <div class="curve" ref={box} role="img" aria-label={`${props.label}. ${t("latest")}: ${last}`} />;
}

function data(props: { times: number[]; lines: Line[]; stacked?: boolean }): uPlot.AlignedData {
  const times = props.times.map((ms) => ms / 1000);
  if (!props.stacked) return [times, ...props.lines.map((line) => line.values)] as uPlot.AlignedData;
  const sums = new Array<number>(times.length).fill(0);
  const rows = props.lines.map((line) => line.values.map((value, at) => (sums[at] = (sums[at] ?? 0) + (value ?? 0))));
  return [times, ...rows.reverse()] as uPlot.AlignedData;
}

function options(Plot: typeof uPlot, props: Parameters<typeof Curve>[0], width: number): uPlot.Options {
  const ink = colour("--faint");
  const grid = { stroke: colour("--line"), width: 1 };
  const show = props.format ?? ((value: number) => value.toLocaleString(language.value, { maximumFractionDigits: 2 }));
  const lines = props.stacked ? [...props.lines].reverse() : props.lines;
  const count = lines.length;
  return {
    width, height: props.height ?? 180,
    tzDate: (seconds) => (utc.value ? Plot.tzDate(new Date(seconds * 1000), "UTC") : new Date(seconds * 1000)),
    cursor: { drag: { x: false, y: false } },
    scales: { y: { range: (_, low, high) => [Math.min(0, low ?? 0), (high ?? 1) || 1] } },
    axes: [
      { stroke: ink, grid, ticks: grid, font: "11px system-ui" },
      { stroke: ink, grid, ticks: grid, font: "11px system-ui", size: 56, values: (_, at) => at.map((value) => show(value)) },
    ],
    series: [
      { value: (_, value) => (value ? new Date(value * 1000).toLocaleString(language.value, { hour12: false, ...(utc.value ? { timeZone: "UTC" } : {}) }) : "–") },
      ...lines.map((line, at) => {
        const own = colour(line.colour ?? PALETTE[(props.stacked ? count - 1 - at : at) % PALETTE.length]!);
        return {
          label: line.name, stroke: own, width: 1.5, dash: line.dash, points: { show: false }, spanGaps: false,
          fill: line.fill || props.stacked ? `${own}55` : undefined,
          value: (_: uPlot, value: number | null) => (value === null ? "–" : `${show(value)}${props.unit ? ` ${props.unit}` : ""}`),
        };
      }),
    ],
  };
}

/** A bar for each name, longest first, with its number: few enough to compare by length. */
export function Ranks(props: { of: { name: string; value: number; text?: string; to?: string; kind?: string }[]; label: string; onPick?: (name: string) => void }) {
  const most = Math.max(1, ...props.of.map((one) => one.value));
  return (
    <ul class="ranks" aria-label={props.label}>
      {props.of.map((one) => (
        <li key={one.name}>
          {props.onPick ? <button type="button" class="link" onClick={() => props.onPick!(one.name)}>{one.text ?? one.name}</button> : <span>{one.text ?? one.name}</span>}
          <Length share={one.value / most} kind={one.kind ?? "used"} />
          <span class="number">{one.value.toLocaleString(language.value)}</span>
        </li>
      ))}
    </ul>
  );
}

function Length(props: { share: number; kind: string }) {
  const ref = useRef<HTMLSpanElement>(null);
  useLayoutEffect(() => {
    if (ref.current) ref.current.style.width = `${Math.max(1, props.share * 100)}%`;
  }, [props.share]);
  return <span class="length" aria-hidden="true"><span ref={ref} class={`piece-${props.kind}`} /></span>;
}
