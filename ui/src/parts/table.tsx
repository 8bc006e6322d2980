// A table that draws only the rows in sight: fixed row height, spacers above and below. Narrow windows show cards.
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { t } from "../i18n";

export type Column<R> = {
  key: string;
  title: string;
  cell: (row: R) => ComponentChildren;
  /** Sort key of the server; none: not sortable. */
  sort?: string;
  number?: boolean;
  /** Left out in narrow windows, the highest first; 0 stays. */
  rank?: number;
  wide?: boolean;
};

const ROW = 34;
const CARD = 84;
const MORE_ROWS = 30;
const NARROW = "(max-width: 640px)";

export function Table<R>(props: {
  rows: R[];
  columns: Column<R>[];
  id: (row: R) => string | number;
  label: string;
  /** Rows in all, of which `rows` are the first. */
  total?: number;
  more?: () => void;
  sort?: string;
  onSort?: (key: string) => void;
  chosen?: Set<string | number>;
  onChoose?: (ids: Set<string | number>) => void;
  card?: (row: R) => ComponentChildren;
  height?: number;
  class?: (row: R) => string;
}) {
  const box = useRef<HTMLDivElement>(null);
  const above = useRef<HTMLTableRowElement>(null);
  const below = useRef<HTMLTableRowElement>(null);
  const [sight, setSight] = useState({ from: 0, to: 60 });
  const [narrow, setNarrow] = useState(() => matchMedia(NARROW).matches);
  const height = narrow && props.card ? CARD : ROW;
  useEffect(() => {
    const query = matchMedia(NARROW);
    const changed = () => setNarrow(query.matches);
    query.addEventListener("change", changed);
    return () => query.removeEventListener("change", changed);
  }, []);
  const look = () => {
    const element = box.current;
    if (!element) return;
    const from = Math.max(0, Math.floor(element.scrollTop / height) - 10);
    const to = Math.min(props.rows.length, from + Math.ceil(element.clientHeight / height) + 20);
    setSight((known) => (known.from === from && known.to === to ? known : { from, to }));
    if (to > props.rows.length - MORE_ROWS && props.more) props.more();
  };
  useEffect(look, [props.rows, height]);
  useEffect(() => {
    const watch = new ResizeObserver(look);
    if (box.current) watch.observe(box.current);
    return () => watch.disconnect();
  }, [props.rows, height]);
  const shown = props.rows.slice(sight.from, sight.to);
  useEffect(() => {
    if (above.current) above.current.style.height = `${sight.from * height}px`;
    if (below.current) below.current.style.height = `${Math.max(0, props.rows.length - sight.to) * height}px`;
  });
  useEffect(() => {
    if (box.current && props.height) box.current.style.maxHeight = `${props.height}px`;
  }, [props.height]);
  const choose = (id: string | number, on: boolean) => {
    const next = new Set(props.chosen);
    if (on) next.add(id);
    else next.delete(id);
    props.onChoose?.(next);
  };
  const all = props.rows.length > 0 && props.rows.every((row) => props.chosen?.has(props.id(row)));
  return (
    <div class={`table-box ${narrow && props.card ? "as-cards" : ""}`} ref={box} onScroll={look} role="region" aria-label={props.label} tabIndex={0}>
      <table aria-rowcount={props.total ?? props.rows.length}>
        <thead>
          <tr>
            {props.onChoose ? (
              <th class="choose"><input type="checkbox" aria-label={t("table.all")} checked={all} onChange={() => props.onChoose!(all ? new Set() : new Set(props.rows.map(props.id)))} /></th>
            ) : null}
            {props.columns.map((column) => <Heading key={column.key} column={column} sort={props.sort} onSort={props.onSort} />)}
          </tr>
        </thead>
        <tbody>
          <tr class="spacer" ref={above} aria-hidden="true"><td colSpan={99} /></tr>
          {shown.map((row, at) => {
            const id = props.id(row);
            return (
              <tr key={id} data-row={id} aria-rowindex={sight.from + at + 2} class={`${props.chosen?.has(id) ? "chosen " : ""}${props.class?.(row) ?? ""}`}>
                {props.onChoose ? (
                  <td class="choose"><input type="checkbox" aria-label={t("table.one", { id: String(id) })} checked={props.chosen?.has(id)} onChange={(event) => choose(id, event.currentTarget.checked)} /></td>
                ) : null}
                {narrow && props.card ? <td class="card-cell">{props.card(row)}</td> : props.columns.map((column) => (
                  <td key={column.key} class={`${column.number ? "number " : ""}${column.wide ? "wide " : ""}rank-${column.rank ?? 0}`}>{column.cell(row)}</td>
                ))}
              </tr>
            );
          })}
          <tr class="spacer" ref={below} aria-hidden="true"><td colSpan={99} /></tr>
        </tbody>
      </table>
    </div>
  );
}

function Heading<R>(props: { column: Column<R>; sort?: string; onSort?: (key: string) => void }) {
  const { column } = props;
  const key = column.sort;
  const up = key !== undefined && props.sort === key;
  const down = key !== undefined && props.sort === `-${key}`;
  const name = `${column.number ? "number " : ""}${column.wide ? "wide " : ""}rank-${column.rank ?? 0}`;
  if (!key || !props.onSort) return <th scope="col" class={name}>{column.title}</th>;
  return (
    <th scope="col" class={name} aria-sort={up ? "ascending" : down ? "descending" : "none"}>
      <button type="button" onClick={() => props.onSort!(up ? `-${key}` : down ? "" : key)}>
        {column.title}<span aria-hidden="true">{up ? " ▲" : down ? " ▼" : ""}</span>
      </button>
    </th>
  );
}
