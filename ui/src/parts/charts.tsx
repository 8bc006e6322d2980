// Curves by uPlot, loaded by the pages that draw; colours of the theme, values under the pointer, a table for readers.
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import type uPlot from "uplot";
import { marks, utc } from "../format";
import { language, t } from "../i18n";
import { colour, dark } from "../theme";

export type Line = { name: string; values: (number | null)[]; colour?: string; fill?: boolean; dash?: number[]; held?: boolean };
/** Points of a line up to which each is marked: a line of one point would not be seen. */
export const MARKED_MAX = 40;
export const PALETTE = ["--c1", "--c2", "--c3", "--c4", "--c5", "--c6", "--c7", "--c8"];

/** Keep a plot in a box: as wide as it, made anew when `of` changes, and given new data otherwise. */
export function usePlot(height: number, of: string, made: (Plot: typeof uPlot, width: number) => uPlot.Options, shown: () => uPlot.AlignedData, news: unknown[]) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  useEffect(() => {
    let gone = false;
    const watch = new ResizeObserver(() => {
      if (plot.current && box.current) plot.current.setSize({ width: box.current.clientWidth, height });
    });
    void import("uplot").then(({ default: Plot }) => {
      if (gone || !box.current) return;
      plot.current?.destroy();
      plot.current = new Plot(made(Plot, box.current.clientWidth), shown(), box.current);
      watch.observe(box.current);
    });
    return () => {
      gone = true;
      watch.disconnect();
      plot.current?.destroy();
      plot.current = null;
    };
  }, [of, dark.value, language.value, utc.value, height]);
  useEffect(() => {
    const known = plot.current;
    if (!known) return;
    const [old] = known.data;
    const { min, max } = known.scales.x ?? {};
    // What the viewer looks at closely stays; else the plot shows all of it.
    const near = old.length > 1 && min != null && max != null && (min > old[0]! || max < old.at(-1)!);
    known.setData(shown(), !near);
    if (near) known.setScale("x", { min, max });
  }, news);
  return box;
}

/** Lines over time: `times` in ms. */
export function Curve(props: { times: number[]; lines: Line[]; height?: number; label: string; unit?: string; stacked?: boolean; format?: (value: number) => string }) {
  const names = props.lines.map((line) => line.name).join("\n");
  const box = usePlot(props.height ?? 180, names, (Plot, width) => options(Plot, props, width), () => data(props), [props.times, props.lines]);
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
      { stroke: ink, grid, ticks: grid, font: "11px system-ui", values: (_, at, _axis, _space, stepS) => marks(at, stepS) },
      { stroke: ink, grid, ticks: grid, font: "11px system-ui", size: 56, values: (_, at) => at.map((value) => show(value)) },
    ],
    series: [
      { value: (_, value) => (value ? new Date(value * 1000).toLocaleString(language.value, { hourCycle: "h23", ...(utc.value ? { timeZone: "UTC" } : {}) }) : "–") },
      ...lines.map((line, at) => {
        const own = colour(line.colour ?? PALETTE[(props.stacked ? count - 1 - at : at) % PALETTE.length]!);
        return {
          label: line.name, stroke: own, width: 1.5, dash: line.dash, points: { show: (plot: uPlot) => plot.data[0].length <= MARKED_MAX && !line.held }, spanGaps: false,
          ...(line.held ? { paths: Plot.paths.stepped!({ align: 1 }) } : {}),
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
