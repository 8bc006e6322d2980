// Curves of the numbers that a program reports, by step: attempts as lines of one colour, linear or logarithmic, smoothed on demand.
import { useRef } from "preact/hooks";
import type uPlot from "uplot";
import type { ReportedLine, ReportedList, ReportedMetric } from "../api/types.gen";
import { bytes, clock } from "../format";
import { has, language, t } from "../i18n";
import { query, setQuery } from "../router";
import { colour } from "../theme";
import { Card, Empty } from "./basics";
import { MARKED_MAX, usePlot } from "./charts";

const HEIGHT = 220;
const SMOOTHING_MAX = 0.9;

export function Reported(props: { of: ReportedList; live: boolean }) {
  const { of } = props;
  const log = query.value.get("scale") === "log";
  const smoothing = Math.min(SMOOTHING_MAX, Math.max(0, Number(query.value.get("smooth")) || 0));
  if (!of.metrics.length) {
    return <Card title={t("reported.title")} tools={<Rank of={of} />}><Empty title={t(props.live ? "reported.none_yet" : "reported.none")} hint={t("reported.none_hint")} command="run.report(loss=loss, accuracy=accuracy)"><p class="faint">{t("reported.none_docs")}</p></Empty></Card>;
  }
  return (
    <section class="reported">
      <header class="card-head">
        <h2>{t("reported.title")}</h2>
        <div class="tools">
          <Rank of={of} />
          <label class="smoothing">{t("reported.smoothing")} <input type="range" min="0" max={SMOOTHING_MAX} step="0.1" value={smoothing} aria-valuetext={smoothing.toLocaleString(language.value)} onInput={(event) => setQuery({ smooth: event.currentTarget.value === "0" ? "" : event.currentTarget.value })} /> <output>{smoothing.toLocaleString(language.value, { minimumFractionDigits: 1 })}</output></label>
          <button type="button" class="small" aria-pressed={!log} onClick={() => setQuery({ scale: "" })}>{t("reported.linear")}</button>
          <button type="button" class="small" aria-pressed={log} onClick={() => setQuery({ scale: "log" })}>{t("reported.log")}</button>
        </div>
      </header>
      <Left of={of} />
      <div class="grid">{of.metrics.map((one) => <Metric key={one.name} of={one} log={log} smoothing={smoothing} />)}</div>
    </section>
  );
}

function Rank(props: { of: ReportedList }) {
  const { rank, ranks } = props.of;
  if (ranks.length < 2 && !rank) return null;
  return (
    <label>{t("job.rank")} <select value={rank} onChange={(event) => setQuery({ rank: event.currentTarget.value === "0" ? "" : event.currentTarget.value })}>
      {[...new Set([...ranks, rank])].map((one) => <option key={one} value={one}>{one}</option>)}
    </select></label>
  );
}

/** What is not in the curves. */
function Left(props: { of: ReportedList }) {
  const { of } = props;
  const said = [
    of.read_bytes < of.size_bytes * 0.95 ? t("reported.sampled", { read: bytes(of.read_bytes), size: bytes(of.size_bytes) }) : "",
    of.attempts_left_out ? t("reported.attempts_left_out", { n: of.attempts_left_out }) : "",
    of.metrics_left_out ? t("reported.metrics_left_out", { count: of.metrics.length }) : "",
  ].filter(Boolean);
  return said.length ? <p class="faint">{said.join(" ")}</p> : null;
}

function Metric(props: { of: ReportedMetric; log: boolean; smoothing: number }) {
  const { of } = props;
  const name = has(`reported.${of.name}`) ? t(`reported.${of.name}`) : of.name;
  const strange = of.lines.reduce((sum, line) => sum + line.not_finite.reduce((own, count) => own + count, 0), 0);
  const hidden = props.log && of.lowest !== null && of.lowest <= 0;
  return (
    <Card title={name}>
      <p class="reported-figures">
        {t("latest")} <strong>{figure(of.last)}</strong> <span class="faint">{t("reported.range", { lowest: figure(of.lowest), highest: figure(of.highest) })}</span>
        {strange ? <span class="strange">{t("reported.not_finite", { n: strange })}</span> : null}
        {hidden ? <span class="faint">{t("reported.not_positive")}</span> : null}
      </p>
      <StepCurve name={name} of={of} log={props.log} smoothing={props.smoothing} />
    </Card>
  );
}

function StepCurve(props: { name: string; of: ReportedMetric; log: boolean; smoothing: number }) {
  const { of, log, smoothing } = props;
  const attempts = of.lines.map((line) => line.attempt);
  const latest = useRef(of.lines);
  latest.current = of.lines;
  const box = usePlot(HEIGHT, JSON.stringify([of.name, attempts, log, smoothing > 0]), (_, width) => options(props, () => latest.current, width), () => data(of.lines, log, smoothing), [of, log, smoothing]);
  const steps = of.lines.at(-1)?.steps;
  const label = t("reported.label", { name: props.name, n: attempts.length, last: figure(of.last), step: (steps?.at(-1) ?? 0).toLocaleString(language.value) });
  return <div class="curve step-curve" ref={box} role="img" aria-label={label} />;
}

/** A number of any size in few characters. */
export function figure(value: number | null | undefined): string {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  if (value && (size < 1e-3 || size >= 1e9)) return value.toExponential(2).replace(/\.?0*e\+?/, "e");
  return value.toLocaleString(language.value, size < 1e3 ? { maximumSignificantDigits: 4 } : { maximumFractionDigits: size < 1e4 ? 1 : 0 });
}

/** Columns for all steps of all attempts. Null ends a line: a number that is none; undefined does not: another attempt's step. */
function data(lines: ReportedLine[], log: boolean, smoothing: number): uPlot.AlignedData {
  const steps = [...new Set(lines.flatMap((line) => line.steps))].sort((one, other) => one - other);
  const place = new Map(steps.map((step, at) => [step, at]));
  const column = (line: ReportedLine, values: (number | null)[]) => {
    const cells = new Array<number | null | undefined>(steps.length).fill(undefined);
    line.steps.forEach((step, at) => {
      const value = values[at] ?? null;
      cells[place.get(step)!] = log && value !== null && value <= 0 ? null : value;
    });
    return cells;
  };
  const raw = lines.map((line) => column(line, line.values));
  return [steps, ...(smoothing ? [...raw, ...lines.map((line) => column(line, smoothed(line.values, smoothing)))] : raw)] as uPlot.AlignedData;
}

/** The exponential moving average, without the pull of its beginning to 0. */
function smoothed(values: (number | null)[], weight: number): (number | null)[] {
  let sum = 0;
  let whole = 0;
  return values.map((value) => {
    if (value === null) return null;
    sum = sum * weight + value * (1 - weight);
    whole = whole * weight + (1 - weight);
    return sum / whole;
  });
}

/** `latest`: the lines of now; those of `props` say how many there are. */
function options(props: { name: string; of: ReportedMetric; log: boolean; smoothing: number }, latest: () => ReportedLine[], width: number): uPlot.Options {
  const ink = colour("--faint");
  const grid = { stroke: colour("--line"), width: 1 };
  const own = colour("--c1");
  const { lines } = props.of;
  const axis = { stroke: ink, grid, ticks: grid, font: "11px system-ui" };
  const series = lines.map((line, at): uPlot.Series => ({
    label: lines.length > 1 ? t("job.attempt_n", { number: line.attempt }) : props.name,
    stroke: own, width: at === lines.length - 1 ? 2 : 1.25, spanGaps: false,
    points: { show: () => (latest()[at]?.steps.length ?? 0) <= MARKED_MAX, size: 5, fill: own },
    value: (_: uPlot, value: number | null | undefined) => figure(value),
  }));
  const raw = series.map((one): uPlot.Series => ({ ...one, class: "raw", stroke: `${own}55`, width: 1, points: { show: false } }));
  return {
    width, height: HEIGHT,
    cursor: { drag: { x: true, y: false } },
    scales: { x: { time: false }, y: { distr: props.log ? 3 : 1 } },
    axes: [
      { ...axis, label: t("job.step"), size: 32, labelSize: 16, labelFont: "11px system-ui", labelGap: 0 },
      { ...axis, size: 64, values: (_, at) => at.map((value) => (value === null ? "" : figure(value))) },
    ],
    series: [{ label: t("job.step"), value: (_, step) => (step === null || step === undefined ? "–" : stepAt(latest(), step)) }, ...(props.smoothing ? [...raw, ...series] : series)],
  };
}

/** A step with the time at which the latest attempt reported it. */
function stepAt(lines: ReportedLine[], step: number): string {
  const line = lines.findLast((one) => one.steps.includes(step));
  const ms = line?.times_ms[line.steps.indexOf(step)];
  return `${step.toLocaleString(language.value)}${ms ? ` · ${clock(ms)}` : ""}`;
}
