// What held which devices when: days of allocations as rows of bars.
import { useEffect } from "preact/hooks";
import type { TimelineView } from "../api/types.gen";
import { useFresh, useGet } from "../api/use";
import { now, time } from "../format";
import { t } from "../i18n";
import { A, Card, Empty, Head, Shown } from "../parts/basics";
import { type Colouring, Gantt, tintOf } from "../parts/gantt";
import { query, setQuery } from "../router";

const HOUR = 3_600_000;
const RANGES: [string, number][] = [["1h", HOUR], ["6h", 6 * HOUR], ["1d", 24 * HOUR], ["3d", 72 * HOUR], ["7d", 168 * HOUR], ["30d", 720 * HOUR]];
const MOST = 31 * 24 * HOUR;
const LEAST = 60_000;

export function Page() {
  const q = query.value;
  const range = q.get("range") ?? "1d";
  const fixed = Number(q.get("from")) && Number(q.get("until"));
  const length = RANGES.find(([key]) => key === range)?.[1] ?? 24 * HOUR;
  const until = fixed ? Number(q.get("until")) : Math.ceil(now.value / 60_000) * 60_000;
  const from = fixed ? Number(q.get("from")) : until - length;
  const by = q.get("by") ?? "node";
  const tint = (q.get("colour") ?? "tenant") as Colouring;
  const timeline = useGet<TimelineView>("/timeline", { from: new Date(from).toISOString(), until: new Date(until).toISOString(), by, user: q.get("user") ?? "", tenant: q.get("tenant") ?? "", limit: 200, cursor: q.get("cursor") ?? "" });
  useFresh(["jobs"], timeline, 10_000, () => !fixed);
  const show = (begin: number, end: number) => {
    const wide = Math.min(MOST, Math.max(LEAST, end - begin));
    const middle = (begin + end) / 2;
    setQuery({ from: String(Math.round(middle - wide / 2)), until: String(Math.round(middle + wide / 2)), range: "" });
  };
  useEffect(() => undefined, []);
  return (
    <>
      <Head title={t("nav.timeline")} sub={`${time(from)} – ${time(until)}`}>
        {RANGES.map(([key]) => <button key={key} type="button" class="small" aria-pressed={!fixed && range === key} onClick={() => setQuery({ range: key, from: "", until: "", cursor: "" })}>{key}</button>)}
        <button type="button" class="small" aria-label={t("timeline.closer")} onClick={() => show(from + (until - from) * 0.2, until - (until - from) * 0.2)}>+</button>
        <button type="button" class="small" aria-label={t("timeline.farther")} onClick={() => show(from - (until - from) * 0.3, until + (until - from) * 0.3)}>−</button>
      </Head>
      <div class="filters">
        <label>{t("timeline.rows")} <select value={by} onChange={(event) => setQuery({ by: event.currentTarget.value, cursor: "" })}>{["node", "tenant", "user", "job"].map((key) => <option key={key} value={key}>{t(`timeline.by_${key}`)}</option>)}</select></label>
        <label>{t("timeline.colour")} <select value={tint} onChange={(event) => setQuery({ colour: event.currentTarget.value })}>{["tenant", "user", "outcome"].map((key) => <option key={key} value={key}>{t(`timeline.by_${key}`)}</option>)}</select></label>
        {(["user", "tenant"] as const).map((name) => q.get(name) ? <button key={name} type="button" class="chip on" onClick={() => setQuery({ [name]: "" })}>{t(`job.${name}`)}: {q.get(name)} <span aria-hidden="true">×</span></button> : null)}
      </div>
      <Shown of={timeline}>{(view) => (
        <Card>
          {view.complete ? null : <p class="banner">{t("timeline.incomplete")}</p>}
          {view.rows.length ? <Gantt of={view} by={tint} now={now.value} onWindow={show} /> : <Empty title={t("timeline.none")} />}
          {view.merged ? null : <Names of={view} by={tint} />}
          {view.next_cursor ? <p><button type="button" onClick={() => setQuery({ cursor: view.next_cursor })}>{t("timeline.more_rows")}</button></p> : null}
        </Card>
      )}</Shown>
    </>
  );
}

/** What the colours mean. */
function Names(props: { of: TimelineView; by: Colouring }) {
  if (props.by === "outcome") return null;
  const seen = new Map<string, string>();
  for (const bar of props.of.bars) if (!bar.held) seen.set((props.by === "user" ? bar.user : bar.tenant) ?? "", tintOf(bar, props.by));
  return <p class="legend">{[...seen].slice(0, 20).map(([name, tint]) => <Name key={name} name={name} tint={tint} by={props.by} />)}</p>;
}

function Name(props: { name: string; tint: string; by: string }) {
  return <span><span class="swatch" aria-hidden="true" ref={(element) => { if (element) element.style.background = props.tint; }} /> <A to={`/timeline?by=job&${props.by}=${encodeURIComponent(props.name)}`}>{props.name}</A></span>;
}
