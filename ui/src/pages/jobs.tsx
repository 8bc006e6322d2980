// All jobs: filtered, sorted and counted by the server; the page holds the rows that were scrolled to.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { get, maySubmit, post } from "../api/client";
import { useChanges } from "../api/live";
import type { ActionAnswer, JobList, JobView } from "../api/types.gen";
import { now, span } from "../format";
import { t, word } from "../i18n";
import { A, Confirm, Empty, Field, Head, Problem, State, Time } from "../parts/basics";
import { type Column, Table } from "../parts/table";
import { query, setQuery } from "../router";
import { keep, kept } from "../store";

const PAGE = 200;
/** Changes out of sight that are counted; beyond, a page that stays open would keep the number of every job there was. */
const UNSEEN_MAX = 1_000;
const STATES = ["waiting", "starting", "running", "suspended", "stopping", "succeeded", "failed", "cancelled"];
const FINISHED = ["succeeded", "failed", "cancelled"];
const FIELDS = "id,name,state,tenant,queue,user,priority,devices,devices_text,submitted_ms,started_ms,finished_ms,ends_ms,reason,nodes,preemptions,array_id,array_index,array_counts,step,replicas";
const ACTIONS = ["cancel", "hold", "release", "requeue", "save"] as const;
type View = { name: string; query: string };

export function Page() {
  const q = query.value;
  const filters = {
    state: q.getAll("state").flatMap((one) => one.split(",")).filter(Boolean), search: q.get("search") ?? "", user: q.get("user") ?? "",
    tenant: q.get("tenant") ?? "", queue: q.get("queue") ?? "", reason: q.get("reason") ?? "", sort: q.get("sort") ?? "",
    array: q.get("array") ?? "",
  };
  const wantsFinished = filters.state.length ? filters.state.some((state) => FINISHED.includes(state)) : q.get("live") !== "1";
  const asked = JSON.stringify([filters, wantsFinished]);
  const list = useJobs(asked, () => ({
    state: filters.state, search: filters.search, user: filters.user, tenant: filters.tenant, queue: filters.queue, reason: filters.reason,
    array: filters.array, sort: filters.sort || "newest", finished: wantsFinished, limit: PAGE, fields: FIELDS,
  }));
  const [chosen, setChosen] = useState<Set<string | number>>(new Set());
  const [action, setAction] = useState<(typeof ACTIONS)[number] | null>(null);
  const [text, setText] = useState(filters.search);
  useEffect(() => setText(filters.search), [filters.search]);
  useEffect(() => {
    if (text === filters.search) return;
    const timer = setTimeout(() => setQuery({ search: text }), 250);
    return () => clearTimeout(timer);
  }, [text]);
  const columns = useMemo(makeColumns, [t("job.name")]);
  const live = Object.values(list.totals).reduce((a, b) => a + b, 0);
  return (
    <>
      <Head title={t("nav.jobs")} sub={list.busy && !list.rows.length ? "…" : t("jobs.live", { n: live })}>
        {maySubmit() ? <A to="/submit" class="button primary">{t("nav.submit")}</A> : null}
      </Head>
      <div class="filters" role="search">
        <input type="search" data-search placeholder={t("jobs.search")} aria-label={t("jobs.search")} value={text} onInput={(event) => setText(event.currentTarget.value)} />
        <div class="chips" role="group" aria-label={t("job.state")}>
          {STATES.map((state) => (
            <button key={state} type="button" class="chip" aria-pressed={filters.state.includes(state)} onClick={() => setQuery({ state: toggled(filters.state, state).join(",") })}>
              {word("state", state)}{list.totals[state] ? <span class="count">{list.totals[state].toLocaleString()}</span> : null}
            </button>
          ))}
        </div>
        {(["user", "tenant", "queue", "reason", "array"] as const).map((name) => filters[name] ? (
          <button key={name} type="button" class="chip on" onClick={() => setQuery({ [name]: "" })} title={t("jobs.drop_filter")}>{t(`job.${name}`)}: {name === "reason" ? word("reason", filters[name]) : filters[name]} <span aria-hidden="true">×</span></button>
        ) : null)}
        <Views />
      </div>
      {list.changed ? <button type="button" class="fresh" onClick={list.reload}>{list.changed < UNSEEN_MAX ? t("jobs.changed", { n: list.changed }) : t("jobs.changed_many", { most: UNSEEN_MAX })}</button> : null}
      {chosen.size ? (
        <div class="bulk" role="toolbar" aria-label={t("jobs.bulk")}>
          <span>{t("jobs.chosen", { n: chosen.size })}</span>
          {ACTIONS.map((one) => <button key={one} type="button" class={one === "cancel" ? "danger" : ""} onClick={() => setAction(one)}>{t(`action.${one}`)}</button>)}
          <button type="button" onClick={() => setChosen(new Set())}>{t("jobs.choose_none")}</button>
        </div>
      ) : null}
      {list.problem ? <Problem of={list.problem} retry={list.reload} /> : null}
      {list.rows.length || list.busy ? (
        <Table rows={list.rows} columns={columns} id={(job) => job.id} label={t("nav.jobs")} more={list.more} sort={filters.sort} onSort={(key) => setQuery({ sort: key })}
          chosen={chosen} onChoose={setChosen} card={Card} />
      ) : list.problem ? null : filters.state.length || filters.search || filters.user || filters.tenant || filters.queue || filters.reason ? (
        <Empty title={t("jobs.no_match")}><button type="button" onClick={() => setQuery({ state: "", search: "", user: "", tenant: "", queue: "", reason: "", array: "" })}>{t("jobs.show_all")}</button></Empty>
      ) : <Empty title={t("overview.no_jobs")} hint={t("overview.no_jobs_hint")} command="penstock run -- echo hello" />}
      {list.busy ? <p class="loading" role="status">{t("loading")}</p> : null}
      {action ? <Act action={action} ids={[...chosen].map(String)} onClose={() => setAction(null)} onDone={() => setChosen(new Set())} /> : null}
    </>
  );
}

function toggled(list: string[], one: string): string[] {
  return list.includes(one) ? list.filter((other) => other !== one) : [...list, one];
}

type Jobs = { rows: JobView[]; totals: Record<string, number>; busy: boolean; problem: Error | null; more: () => void; reload: () => void; changed: number };

/** The rows of a question, page by page; rows in sight are kept up to date where they stand, and never move. */
function useJobs(asked: string, make: () => Record<string, string | number | boolean | string[]>): Jobs {
  const [state, set] = useState<{ rows: JobView[]; totals: Record<string, number>; cursor: string; busy: boolean; problem: Error | null }>({ rows: [], totals: {}, cursor: "", busy: true, problem: null });
  const [unseen, setUnseen] = useState<Set<number>>(new Set());
  const running = useRef<AbortController | null>(null);
  const load = (cursor: string, keepRows: boolean) => {
    running.current?.abort();
    const own = (running.current = new AbortController());
    set((known) => ({ ...known, busy: true, rows: keepRows ? known.rows : [] }));
    get<JobList>("/jobs", { ...make(), cursor }, own.signal).then(
      (list) => own.signal.aborted || set((known) => ({ rows: cursor ? [...known.rows, ...list.jobs] : list.jobs, totals: cursor ? known.totals : list.totals, cursor: list.next_cursor, busy: false, problem: null })),
      (problem: Error) => own.signal.aborted || set((known) => ({ ...known, busy: false, problem })),
    );
    if (!cursor) setUnseen(new Set());
  };
  useEffect(() => {
    load("", false);
    return () => running.current?.abort();
  }, [asked]);
  useChanges(["jobs", "counts"], (changes) => {
    if (changes.jobs_anew) {
      if (document.visibilityState === "visible" && scrollTop() < 200) load("", true);
      else setUnseen((known) => added(known, [-1]));
      return;
    }
    const by = new Map((changes.jobs ?? []).map((job) => [job.id, job]));
    if (!by.size) return;
    const own = new Set(state.rows.map((job) => job.id));
    set((known) => ({ ...known, rows: known.rows.map((job) => (by.has(job.id) ? { ...job, ...by.get(job.id)!, array_counts: job.array_counts } : job)) }));
    const others = [...by.keys()].filter((id) => !own.has(id));
    if (others.length) setUnseen((known) => added(known, others));
  });
  const more = () => {
    if (!state.busy && state.cursor) load(state.cursor, true);
  };
  return { ...state, more, reload: () => load("", true), changed: unseen.size };
}

function added(known: Set<number>, ids: number[]): Set<number> {
  if (known.size >= UNSEEN_MAX || ids.every((id) => known.has(id))) return known;
  return new Set([...known, ...ids].slice(0, UNSEEN_MAX));
}

function scrollTop(): number {
  return document.querySelector(".table-box")?.scrollTop ?? 0;
}

function makeColumns(): Column<JobView>[] {
  return [
    { key: "id", title: "#", sort: "id", number: true, cell: (job) => <A to={`/jobs/${job.id}`} class="job-link">{job.id}</A> },
    { key: "name", title: t("job.name"), sort: "name", wide: true, cell: (job) => <><A to={`/jobs/${job.id}`}>{job.name}</A>{job.array_id !== null ? <span class="faint"> [{job.array_index}]</span> : null}</> },
    { key: "state", title: t("job.state"), sort: "state", cell: (job) => <State of={job.state} /> },
    { key: "reason", title: t("job.why"), wide: true, rank: 2, cell: (job) => <span title={job.reason}>{job.state === "waiting" ? word("reason", job.reason) : job.reason}</span> },
    { key: "user", title: t("job.user"), sort: "user", rank: 1, cell: (job) => job.user },
    { key: "tenant", title: t("job.tenant"), sort: "tenant", rank: 4, cell: (job) => job.tenant },
    { key: "queue", title: t("job.queue"), sort: "queue", rank: 3, cell: (job) => job.queue },
    { key: "priority", title: t("job.priority"), sort: "-priority", number: true, rank: 4, cell: (job) => job.priority },
    { key: "devices", title: t("job.devices"), sort: "devices", number: true, rank: 1, cell: (job) => job.devices_text || job.devices },
    { key: "submitted", title: t("job.submitted"), sort: "submitted", rank: 2, cell: (job) => <Time ms={job.submitted_ms} relative /> },
    { key: "time", title: t("job.ran"), rank: 3, number: true, cell: (job) => (job.started_ms ? span((job.finished_ms || now.value) - job.started_ms) : "–") },
    { key: "nodes", title: t("job.nodes"), rank: 5, cell: (job) => job.nodes.length > 1 ? `${job.nodes[0]} +${job.nodes.length - 1}` : job.nodes[0] ?? "" },
  ];
}

function Card(job: JobView) {
  return (
    <div class="job-card">
      <div><A to={`/jobs/${job.id}`} class="job-link">{`#${job.id}`}</A> <A to={`/jobs/${job.id}`}>{job.name}</A></div>
      <div><State of={job.state} /> <span class="faint">{job.state === "waiting" ? word("reason", job.reason) : ""}</span></div>
      <div class="faint">{job.user} · {job.devices_text || job.devices} · <Time ms={job.submitted_ms} relative /></div>
    </div>
  );
}

/** Do one action with jobs: what would happen is counted first. */
export function Act(props: { action: string; ids: string[]; onClose: () => void; onDone?: () => void; set?: Record<string, unknown> }) {
  const [plan, setPlan] = useState<ActionAnswer | null>(null);
  const [problem, setProblem] = useState<unknown>(null);
  const body = { action: props.action, select: { ids: props.ids }, ...(props.set ? { set: props.set } : {}) };
  useEffect(() => {
    post<ActionAnswer>("/jobs/actions", { ...body, dry_run: true }).then(setPlan, setProblem);
  }, []);
  const run = async () => {
    const done = await post<ActionAnswer>("/jobs/actions", body);
    props.onDone?.();
    return t("action.done", { n: done.changed, action: t(`action.${props.action}`) });
  };
  return (
    <Confirm title={t("action.title", { action: t(`action.${props.action}`), n: props.ids.length })} action={t(`action.${props.action}`)} danger={props.action === "cancel"} onClose={props.onClose} run={run} disabled={!plan || !plan.changed}>
      {problem ? <Problem of={problem} /> : !plan ? <p class="loading">{t("loading")}</p> : (
        <>
          <p>{t("action.would", { n: plan.changed })}</p>
          {plan.unchanged.map((one) => <p key={one.code} class="faint">{one.text}</p>)}
        </>
      )}
    </Confirm>
  );
}

/** Named queries of this viewer, kept by the browser. */
function Views() {
  const [views, setViews] = useState<View[]>(() => kept("views", []));
  const [naming, setNaming] = useState(false);
  const [name, setName] = useState("");
  const save = (next: View[]) => {
    setViews(next);
    keep("views", next);
  };
  return (
    <div class="views">
      <select aria-label={t("jobs.views")} value="" onChange={(event) => {
        const view = views.find((one) => one.name === event.currentTarget.value);
        if (view) setQuery({ state: "", search: "", user: "", tenant: "", queue: "", reason: "", sort: "", array: "", ...Object.fromEntries(new URLSearchParams(view.query)) });
        event.currentTarget.value = "";
      }}>
        <option value="">{t("jobs.views")}</option>
        {views.map((view) => <option key={view.name} value={view.name}>{view.name}</option>)}
      </select>
      <button type="button" class="small" onClick={() => setNaming(true)}>{t("jobs.save_view")}</button>
      {naming ? (
        <Confirm title={t("jobs.save_view")} action={t("save")} onClose={() => setNaming(false)} disabled={!name.trim()} run={async () => {
          save([...views.filter((one) => one.name !== name.trim()), { name: name.trim(), query: query.value.toString() }]);
          setName("");
        }}>
          <Field label={t("jobs.view_name")}><input value={name} maxLength={60} onInput={(event) => setName(event.currentTarget.value)} /></Field>
          {views.length ? <ul class="lines">{views.map((view) => <li key={view.name}>{view.name} <button type="button" class="small" onClick={() => save(views.filter((one) => one !== view))}>{t("remove")}</button></li>)}</ul> : null}
        </Confirm>
      ) : null}
    </div>
  );
}
