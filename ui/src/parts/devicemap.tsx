// All devices of the cluster on one canvas, grouped by rack: 8,000 are drawn in some milliseconds, and a click is
// arithmetic. For keyboards and readers the nodes are a list behind it: arrows move, Enter opens.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { DeviceRow, DeviceView, NodeView } from "../api/types.gen";
import { t, word } from "../i18n";
import { colour, dark } from "../theme";
import { PALETTE } from "./charts";

export type Tint = "use" | "job" | "health" | Measured;
export const MEASURED = ["measured", "heat", "power"] as const;
export type Measured = (typeof MEASURED)[number];
/** What devices report, by `NODE/INDEX`. */
export type Reported = Map<string, Partial<DeviceRow>>;
const HEAT_C = [30, 90] as const;
const POWER_W = 700;
const CELL = 11;
const CELL_MAX = 26;
const GAP = 2;
const AIM_PX = 480;
const PER_ROW = 8;
const PAD = 8;
const TITLE = 20;
const LABEL = 13;

type Tile = { node: NodeView; x: number; y: number; width: number; height: number };
type Group = { name: string; x: number; y: number };
type Layout = { tiles: Tile[]; groups: Group[]; height: number; cell: number };

function placeOf(node: NodeView): string {
  return node.rack || node.switch || node.zone || node.pool;
}

/** Lay nodes out with the largest squares with which all of them are in sight; of very many, small ones that scroll. */
export function layout(nodes: NodeView[], width: number): Layout {
  for (let cell = CELL_MAX; ; cell -= 3) {
    const laid = laidOut(nodes, width, cell);
    if (laid.height <= AIM_PX || cell - 3 < CELL) return laid;
  }
}

/** Lay nodes out in rows, a group after the other; returns what to draw, in CSS pixels. */
function laidOut(nodes: NodeView[], width: number, cell: number): Layout {
  const by = new Map<string, NodeView[]>();
  for (const node of nodes) by.set(placeOf(node), [...(by.get(placeOf(node)) ?? []), node]);
  const tiles: Tile[] = [];
  const groups: Group[] = [];
  let y = 0;
  for (const name of [...by.keys()].sort()) {
    groups.push({ name, x: 0, y });
    y += TITLE;
    let x = 0;
    let tallest = 0;
    for (const node of by.get(name)!) {
      const rows = Math.max(1, Math.ceil(node.devices.length / PER_ROW));
      const tileWidth = Math.min(width, PER_ROW * (cell + GAP) + PAD);
      const tileHeight = LABEL + rows * (cell + GAP) + PAD;
      if (x + tileWidth > width && x > 0) {
        x = 0;
        y += tallest;
        tallest = 0;
      }
      tiles.push({ node, x, y, width: tileWidth, height: tileHeight });
      x += tileWidth;
      tallest = Math.max(tallest, tileHeight);
    }
    y += tallest + PAD;
  }
  return { tiles, groups, height: Math.max(y, 40), cell };
}

export function kindOf(node: NodeView, device: DeviceView): string {
  if (!device.healthy) return "unhealthy";
  if (device.held || device.taken || device.job !== null) return "used";
  return node.state !== "ready" || node.draining ? "closed" : "free";
}

export function isMeasured(by: Tint): by is Measured {
  return (MEASURED as readonly string[]).includes(by);
}

/** Return how far a device is between little and much, 0 to 1; null where it does not report it. */
function shareOf(row: Partial<DeviceRow> | undefined, by: Measured): number | null {
  if (!row) return null;
  if (by === "measured") return row.use_milli == null ? null : row.use_milli / 1000;
  if (by === "heat") return row.temperature_c == null ? null : (row.temperature_c - HEAT_C[0]) / (HEAT_C[1] - HEAT_C[0]);
  return row.power_mw == null ? null : row.power_mw / (row.power_limit_mw || POWER_W * 1000);
}

/** Return a colour between two of the style sheet, `share` of the way. */
export function between(low: string, high: string, share: number): string {
  return `color-mix(in oklab, ${high} ${Math.round(100 * Math.min(1, Math.max(0, share)))}%, ${low})`;
}

function fill(node: NodeView, device: DeviceView, by: Tint, reported?: Reported): string {
  const kind = kindOf(node, device);
  if (isMeasured(by)) {
    const share = shareOf(reported?.get(`${node.name}/${device.index}`), by);
    return share === null ? colour("--closed") : between(colour("--free"), colour(by === "heat" ? "--unhealthy" : "--used"), share);
  }
  if (by === "job" && kind === "used") return device.job === null ? colour("--closed") : colour(PALETTE[device.job % PALETTE.length]!);
  if (by === "health") return colour(!device.healthy ? "--unhealthy" : node.state !== "ready" ? "--closed" : node.draining ? "--preempted" : "--running");
  return colour({ unhealthy: "--unhealthy", used: "--used", closed: "--closed", free: "--free" }[kind]!);
}

export function DeviceMap(props: { nodes: NodeView[]; by: Tint; chosen: string; onChoose: (node: string) => void; highlight?: number; reported?: Reported }) {
  const box = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const [width, setWidth] = useState(0);
  const [under, setUnder] = useState("");
  const laid = useMemo(() => layout(props.nodes, Math.max(120, width)), [props.nodes, width]);
  useEffect(() => {
    const watch = new ResizeObserver(() => setWidth(box.current?.clientWidth ?? 0));
    if (box.current) watch.observe(box.current);
    return () => watch.disconnect();
  }, []);
  useEffect(() => {
    if (canvas.current && width) draw(canvas.current, laid, width, props);
  }, [laid, width, props.by, props.chosen, props.highlight, props.reported, dark.value]);
  const at = (event: MouseEvent): Tile | undefined => laid.tiles.find((tile) => event.offsetX >= tile.x && event.offsetX < tile.x + tile.width && event.offsetY >= tile.y && event.offsetY < tile.y + tile.height);
  const key = (event: KeyboardEvent) => {
    const now = laid.tiles.findIndex((tile) => tile.node.name === props.chosen);
    const row = Math.max(1, Math.floor(width / (PER_ROW * (laid.cell + GAP) + PAD)));
    const by = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: row, ArrowUp: -row }[event.key];
    if (by === undefined) return;
    event.preventDefault();
    const next = laid.tiles[Math.min(laid.tiles.length - 1, Math.max(0, now < 0 ? 0 : now + by))];
    if (next) props.onChoose(next.node.name);
  };
  const chosen = props.nodes.find((node) => node.name === props.chosen);
  return (
    <div class="map" ref={box}>
      <canvas ref={canvas} tabIndex={0} role="application" aria-label={t("map.label", { n: props.nodes.length })} onKeyDown={key}
        onClick={(event) => props.onChoose(at(event)?.node.name ?? "")} onMouseMove={(event) => setUnder(at(event)?.node.name ?? "")} onMouseLeave={() => setUnder("")} />
      <p class="map-under faint" role="status">{describe(props.nodes.find((node) => node.name === under) ?? chosen)}</p>
    </div>
  );
}

function describe(node: NodeView | undefined): string {
  if (!node) return t("map.hint");
  const counts: Record<string, number> = {};
  for (const device of node.devices) counts[kindOf(node, device)] = (counts[kindOf(node, device)] ?? 0) + 1;
  return `${node.name} · ${word("node", node.draining ? "draining" : node.state)} · ${Object.entries(counts).map(([kind, n]) => `${n} ${t(`device.${kind}`).toLowerCase()}`).join(", ")}`;
}

function draw(canvas: HTMLCanvasElement, laid: Layout, width: number, props: { by: Tint; chosen: string; highlight?: number; reported?: Reported }): void {
  const scale = devicePixelRatio || 1;
  canvas.width = width * scale;
  canvas.height = laid.height * scale;
  canvas.style.width = `${width}px`;
  canvas.style.height = `${laid.height}px`;
  const pen = canvas.getContext("2d")!;
  pen.scale(scale, scale);
  pen.font = "600 12px system-ui, sans-serif";
  pen.fillStyle = colour("--ink");
  for (const group of laid.groups) pen.fillText(group.name || "–", group.x, group.y + 14);
  pen.font = "10px system-ui, sans-serif";
  const [faint, ink, accent] = [colour("--faint"), colour("--ink"), colour("--accent")];
  const size = laid.cell;
  for (const tile of laid.tiles) {
    pen.fillStyle = faint;
    pen.fillText(tile.node.name.length > 17 ? `${tile.node.name.slice(0, 8)}…${tile.node.name.slice(-7)}` : tile.node.name, tile.x, tile.y + 10);
    tile.node.devices.forEach((device, index) => {
      const x = tile.x + (index % PER_ROW) * (size + GAP);
      const y = tile.y + LABEL + Math.floor(index / PER_ROW) * (size + GAP);
      pen.fillStyle = fill(tile.node, device, props.by, props.reported);
      pen.fillRect(x, y, size, size);
      if (!device.healthy) cross(pen, x, y, size, ink);
      if (props.highlight && device.job === props.highlight) {
        pen.strokeStyle = ink;
        pen.lineWidth = 2;
        pen.strokeRect(x + 1, y + 1, size - 2, size - 2);
      }
    });
    if (tile.node.name === props.chosen) {
      pen.strokeStyle = accent;
      pen.lineWidth = 2;
      pen.strokeRect(tile.x - 2, tile.y, tile.width - PAD + 2, tile.height - PAD + 4);
    }
  }
}

function cross(pen: CanvasRenderingContext2D, x: number, y: number, size: number, ink: string): void {
  pen.strokeStyle = ink;
  pen.lineWidth = 1.2;
  pen.beginPath();
  pen.moveTo(x + 2, y + 2);
  pen.lineTo(x + size - 2, y + size - 2);
  pen.moveTo(x + size - 2, y + 2);
  pen.lineTo(x + 2, y + size - 2);
  pen.stroke();
}
