// Allocations over time on one canvas: rows of nodes, tenants, users or jobs; zoom by wheel, buttons and keys. The same
// bars are a table behind it, for readers.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { AllocationView, TimelineView } from "../api/types.gen";
import { clock, span, time } from "../format";
import { t, word } from "../i18n";
import { go } from "../router";
import { colour, dark } from "../theme";
import { PALETTE } from "./charts";

const ROW = 22;
const LABEL_WIDE = 130;
const LABEL_NARROW = 70;
/** Of the present width. */
let labelWidth = LABEL_WIDE;
const AXIS = 22;
const STEPS = [60_000, 300_000, 900_000, 3_600_000, 10_800_000, 21_600_000, 86_400_000, 604_800_000];

export type Colouring = "tenant" | "user" | "outcome";

function hash(text: string): number {
  let sum = 0;
  for (const sign of text) sum = (sum * 31 + sign.codePointAt(0)!) % 9_973;
  return sum;
}

export function tintOf(bar: AllocationView, by: Colouring): string {
  if (bar.held) return colour("--closed");
  if (by === "outcome") return colour(bar.outcome === "failed" || bar.outcome === "lost" ? "--failed" : bar.outcome === "preempted" ? "--preempted" : bar.outcome ? "--c1" : "--running");
  return colour(PALETTE[hash((by === "user" ? bar.user : bar.tenant) ?? "") % PALETTE.length]!);
}

export function Gantt(props: { of: TimelineView; by: Colouring; now: number; onWindow: (from: number, until: number) => void }) {
  const { of } = props;
  const box = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const [width, setWidth] = useState(0);
  const [under, setUnder] = useState<AllocationView | null>(null);
  const drag = useRef<{ x: number; from: number; until: number } | null>(null);
  labelWidth = width && width < 600 ? LABEL_NARROW : LABEL_WIDE;
  const height = AXIS + Math.max(1, of.rows.length) * ROW;
  const scale = Math.max(1, width - labelWidth) / (of.until_ms - of.from_ms);
  const lanes = useMemo(() => stacked(of), [of]);
  useEffect(() => {
    const watch = new ResizeObserver(() => setWidth(box.current?.clientWidth ?? 0));
    if (box.current) watch.observe(box.current);
    return () => watch.disconnect();
  }, []);
  useEffect(() => {
    if (canvas.current && width) draw(canvas.current, of, lanes, { width, height, scale, by: props.by, now: props.now, under });
  }, [of, lanes, width, props.by, dark.value, under]);
  const at = (event: MouseEvent): AllocationView | null => {
    const row = Math.floor((event.offsetY - AXIS) / ROW);
    const ms = of.from_ms + (event.offsetX - labelWidth) / scale;
    const within = (event.offsetY - AXIS - row * ROW) / ROW;
    return of.bars.find((bar, index) => bar.row === row && bar.start_ms <= ms && (bar.end_ms ?? props.now) >= ms && Math.floor(within * lanes.of[row]!) === lanes.lane[index]) ?? null;
  };
  const zoom = (factor: number, around: number) => {
    const from = around - (around - of.from_ms) * factor;
    const until = around + (of.until_ms - around) * factor;
    props.onWindow(Math.round(from), Math.round(until));
  };
  const wheel = (event: WheelEvent) => {
    if (!event.ctrlKey && !event.shiftKey) return;
    event.preventDefault();
    zoom(event.deltaY > 0 ? 1.25 : 0.8, of.from_ms + Math.max(0, event.offsetX - labelWidth) / scale);
  };
  const key = (event: KeyboardEvent) => {
    const whole = of.until_ms - of.from_ms;
    const middle = of.from_ms + whole / 2;
    if (event.key === "+" || event.key === "=") zoom(0.7, middle);
    else if (event.key === "-") zoom(1.4, middle);
    else if (event.key === "ArrowLeft") props.onWindow(of.from_ms - whole / 4, of.until_ms - whole / 4);
    else if (event.key === "ArrowRight") props.onWindow(of.from_ms + whole / 4, of.until_ms + whole / 4);
    else return;
    event.preventDefault();
  };
  useEffect(() => {
    const element = canvas.current;
    element?.addEventListener("wheel", wheel, { passive: false });
    return () => element?.removeEventListener("wheel", wheel);
  });
  return (
    <div class="gantt" ref={box}>
      <canvas ref={canvas} tabIndex={0} role="application" aria-label={t("timeline.label", { n: of.bars_total })} onKeyDown={key}
        onMouseDown={(event) => (drag.current = { x: event.offsetX, from: of.from_ms, until: of.until_ms })}
        onMouseUp={(event) => {
          const begun = drag.current;
          drag.current = null;
          if (begun && Math.abs(begun.x - event.offsetX) > 5) props.onWindow(Math.round(begun.from + (begun.x - event.offsetX) / scale), Math.round(begun.until + (begun.x - event.offsetX) / scale));
          else {
            const bar = at(event);
            if (bar?.job) go(`/jobs/${bar.job}`);
          }
        }}
        onMouseMove={(event) => setUnder(drag.current ? null : at(event))} onMouseLeave={() => setUnder(null)} />
      <p class="map-under faint" role="status">{under ? describe(under, props.now) : of.merged ? t("timeline.merged", { n: of.bars_total }) : t("timeline.hint")}</p>
    </div>
  );
}

function describe(bar: AllocationView, now: number): string {
  const long = span((bar.end_ms ?? now) - bar.start_ms);
  const devices = t("timeline.devices", { n: bar.held_devices });
  if (bar.held) return `${bar.node} · ${devices} · ${t("nodes.others")} · ${time(bar.start_ms)} · ${long}`;
  return `#${bar.job} ${bar.name} · ${bar.user} · ${bar.tenant} · ${bar.node} · ${devices} · ${time(bar.start_ms)} – ${bar.end_ms ? time(bar.end_ms) : t("timeline.now")} · ${long}${bar.outcome ? ` · ${word("outcome", bar.outcome)}` : ""}`;
}

/** Give bars of one row that overlap a lane each. */
function stacked(of: TimelineView): { lane: number[]; of: number[] } {
  const lane: number[] = [];
  const ends: number[][] = of.rows.map(() => []);
  of.bars.forEach((bar, index) => {
    const own = ends[bar.row] ?? [];
    let free = own.findIndex((end) => end <= bar.start_ms);
    if (free < 0) free = own.length;
    own[free] = bar.end_ms ?? Number.MAX_SAFE_INTEGER;
    lane[index] = free;
  });
  return { lane, of: ends.map((own) => Math.max(1, own.length)) };
}

type How = { width: number; height: number; scale: number; by: Colouring; now: number; under: AllocationView | null };

function draw(canvas: HTMLCanvasElement, of: TimelineView, lanes: { lane: number[]; of: number[] }, how: How): void {
  const ratio = devicePixelRatio || 1;
  canvas.width = how.width * ratio;
  canvas.height = how.height * ratio;
  canvas.style.width = `${how.width}px`;
  canvas.style.height = `${how.height}px`;
  const pen = canvas.getContext("2d")!;
  pen.scale(ratio, ratio);
  axis(pen, of, how);
  const ink = colour("--ink");
  pen.font = "12px system-ui, sans-serif";
  of.rows.forEach((row, at) => {
    const y = AXIS + at * ROW;
    pen.fillStyle = ink;
    pen.fillText(row.key.length > 19 ? `${row.key.slice(0, 18)}…` : row.key, 2, y + 15);
    (row.density ?? []).forEach((value, part, all) => {
      const most = row.devices || Math.max(1, ...all);
      const wide = (how.width - labelWidth) / all.length;
      pen.globalAlpha = Math.min(1, value / most);
      pen.fillStyle = colour("--used");
      pen.fillRect(labelWidth + part * wide, y + 2, Math.ceil(wide), ROW - 4);
      pen.globalAlpha = 1;
    });
  });
  of.bars.forEach((bar, index) => {
    const from = Math.max(labelWidth, labelWidth + (bar.start_ms - of.from_ms) * how.scale);
    const to = Math.min(how.width, labelWidth + ((bar.end_ms ?? how.now) - of.from_ms) * how.scale);
    const tall = (ROW - 4) / lanes.of[bar.row]!;
    const y = AXIS + bar.row * ROW + 2 + lanes.lane[index]! * tall;
    pen.fillStyle = tintOf(bar, how.by);
    pen.fillRect(from, y, Math.max(1, to - from - 0.5), Math.max(1, tall - 0.5));
    if (bar === how.under) {
      pen.strokeStyle = ink;
      pen.strokeRect(from, y, Math.max(2, to - from), tall);
    }
    if (tall > 12 && to - from > 60 && !bar.held) {
      pen.save();
      pen.beginPath();
      pen.rect(from, y, to - from - 4, tall);
      pen.clip();
      pen.fillStyle = dark.value ? "#10161c" : "#ffffff";
      pen.fillText(`#${bar.job} ${bar.name}`, from + 4, y + 13);
      pen.restore();
    }
  });
}

function axis(pen: CanvasRenderingContext2D, of: TimelineView, how: How): void {
  const wanted = (of.until_ms - of.from_ms) / Math.max(2, (how.width - labelWidth) / 110);
  const step = STEPS.find((one) => one >= wanted) ?? STEPS.at(-1)!;
  pen.font = "11px system-ui, sans-serif";
  pen.strokeStyle = colour("--line");
  pen.fillStyle = colour("--faint");
  for (let ms = Math.ceil(of.from_ms / step) * step; ms < of.until_ms; ms += step) {
    const x = labelWidth + (ms - of.from_ms) * how.scale;
    pen.beginPath();
    pen.moveTo(x, AXIS - 4);
    pen.lineTo(x, how.height);
    pen.stroke();
    pen.fillText(step < 300_000 ? clock(ms) : time(ms), x + 3, 12);
  }
}
