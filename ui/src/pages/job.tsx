// One job: where it is, why it waits and what would help, its attempts, output, metrics, cost and record.
import { useEffect, useState } from "preact/hooks";
import { get, me, post } from "../api/client";
import type { ActionAnswer, AttemptList, Diagnosis, Edit, Explanation, JobEta, JobSeries, JobSeriesList, JobView, Record as LogRecord, ReportedList, ToldEta, UsageList } from "../api/types.gen";
import { useFresh, useGet } from "../api/use";
import { bytes, deviceHours, energy, now, number, span } from "../format";
import { has, t, word } from "../i18n";
import { A, Card, Confirm, Copy, Dialog, Empty, Field, Head, note, Problem, Shown, State, Tabs, Time } from "../parts/basics";
import { Curve } from "../parts/charts";
import { Log } from "../parts/log";
import { Reported } from "../parts/reported";
import { Waterfall } from "../parts/waterfall";
import { query, setQuery } from "../router";
import { Act } from "./jobs";

const FINISHED = ["succeeded", "failed", "cancelled"];

export function Page(props: { id: string }) {
  const id = Number(props.id);
  const job = useGet<JobView>(`/jobs/${id}`);
  useFresh(["jobs"], job, 1_000, (changes) => !!changes.jobs_anew || !!changes.jobs?.some((one) => one.id === id));
  const tab = query.value.get("tab") ?? "summary";
  return (
    <Shown of={job}>{(view) => (
      <>
        <Head title={`#${view.id} ${view.name}`} sub={<><State of={view.state} /> <span class="faint">{view.user} · {view.tenant} · {view.queue}</span></>}>
          <Actions of={view} reload={job.reload} />
        </Head>
        <Tabs label={t("job.parts")} at={tab} onChoose={(key) => setQuery({ tab: key === "summary" ? "" : key })}
          of={["summary", "log", "metrics", "record"].map((key) => [key, t(`job.tab.${key}`)])} />
        {tab === "log" ? <Log job={id} live={!FINISHED.includes(view.state)} /> : tab === "metrics" ? <Metrics id={id} live={!FINISHED.includes(view.state)} /> : tab === "record" ? <Story id={id} /> : <Summary of={view} />}
      </>
    )}</Shown>
  );
}

function Actions(props: { of: JobView; reload: () => void }) {
  const { of } = props;
  const [action, setAction] = useState("");
  if (FINISHED.includes(of.state) || me.value?.level === "read") return null;
  const running = of.state === "running" || of.state === "starting";
  const held = of.reason === "held";
  return (
    <>
      {running ? <button type="button" onClick={() => setAction("save")}>{t("action.save")}</button> : null}
      {running ? <button type="button" onClick={() => setAction("requeue")}>{t("action.requeue")}</button> : null}
      {of.state === "waiting" ? <button type="button" onClick={() => setAction(held ? "release" : "hold")}>{t(held ? "action.release" : "action.hold")}</button> : null}
      <button type="button" onClick={() => setAction("edit")}>{t("action.edit")}</button>
      <button type="button" class="danger" onClick={() => setAction("cancel")}>{t("action.cancel")}</button>
      {action === "edit" ? <EditJob of={of} onClose={() => setAction("")} onDone={props.reload} /> : action ? <Act action={action} ids={[String(of.id)]} onClose={() => setAction("")} onDone={props.reload} /> : null}
    </>
  );
}

function EditJob(props: { of: JobView; onClose: () => void; onDone: () => void }) {
  const [priority, setPriority] = useState(String(props.of.priority));
  const [limit, setLimit] = useState("");
  const [queue, setQueue] = useState(props.of.queue);
  const set = {
    ...(priority !== String(props.of.priority) ? { priority: Number(priority) } : {}),
    ...(limit ? { time_limit: limit } : {}),
    ...(queue !== props.of.queue ? { queue } : {}),
  };
  return (
    <Confirm title={t("action.edit_title", { id: props.of.id })} action={t("save")} onClose={props.onClose} disabled={!Object.keys(set).length} run={async () => {
      const done = await post<ActionAnswer>("/jobs/actions", { action: "edit", select: { ids: [String(props.of.id)] }, set });
      if (!done.changed) throw new Error(done.unchanged[0]?.text ?? t("action.nothing"));
      props.onDone();
      return t("action.done", { n: done.changed, action: t("action.edit") });
    }}>
      <Field label={t("job.priority")}><input type="number" value={priority} onInput={(event) => setPriority(event.currentTarget.value)} /></Field>
      <Field label={t("job.time_limit")} hint={props.of.time_limit_ms ? span(props.of.time_limit_ms) : t("job.no_limit")}><input value={limit} placeholder="4h" onInput={(event) => setLimit(event.currentTarget.value)} /></Field>
      <Field label={t("job.queue")}><input value={queue} onInput={(event) => setQueue(event.currentTarget.value)} /></Field>
    </Confirm>
  );
}

function Summary(props: { of: JobView }) {
  const { of } = props;
  const attempts = useGet<AttemptList>(`/jobs/${of.id}/attempts`);
  useFresh(["jobs"], attempts, 2_000, (changes) => !!changes.jobs?.some((one) => one.id === of.id));
  return (
    <div class="grid">
      {of.state === "failed" ? <Diagnosed of={of} /> : null}
      {FINISHED.includes(of.state) ? <Ended of={of} /> : <Why of={of} />}
      {of.state !== "failed" ? <Diagnosed of={of} /> : null}
      <Card title={t("job.facts")}>
        <dl class="facts">
          <dt>{t("job.asks")}</dt><dd>{of.asks || of.devices_text || of.devices}</dd>
          {of.placement ? <><dt>{t("job.placement")}</dt><dd>{of.placement}</dd></> : null}
          <dt>{t("job.command")}</dt><dd><code class="command">{of.command.join(" ")}</code></dd>
          <dt>{t("job.submitted")}</dt><dd><Time ms={of.submitted_ms} /></dd>
          {of.started_ms ? <><dt>{t("job.started")}</dt><dd><Time ms={of.started_ms} /> <span class="faint">{t("job.waited", { span: span(of.started_ms - of.submitted_ms) })}</span></dd></> : null}
          {of.finished_ms ? <><dt>{t("job.finished")}</dt><dd><Time ms={of.finished_ms} /></dd></> : of.ends_ms ? <><dt>{t("job.ends")}</dt><dd><Time ms={of.ends_ms} relative /></dd></> : null}
          <dt>{t("job.priority")}</dt><dd>{of.priority}{of.preemptible ? ` · ${t("job.preemptible")}` : ""}</dd>
          {of.preemptions ? <><dt>{t("job.preemptions")}</dt><dd>{of.preemptions}</dd></> : null}
          {of.step ? <><dt>{t("job.step")}</dt><dd>{number(of.step)}{of.checkpoint_step ? ` · ${t("job.saved_at", { step: of.checkpoint_step })}` : ""}</dd></> : null}
          {of.nodes.length ? <><dt>{t("job.nodes")}</dt><dd>{of.nodes.map((node) => <A key={node} to={`/nodes?node=${encodeURIComponent(node)}`} class="node-link">{node}</A>)}</dd></> : null}
          <dt>{t("job.cli")}</dt><dd><Copy text={`penstock show ${of.id}`} /></dd>
        </dl>
      </Card>
      <Card title={t("job.attempts")} class="span">
        <Shown of={attempts}>{(list) => list.attempts.length || list.waits.length ? <Waterfall of={list} now={now.value} /> : <Empty title={t("job.no_attempts")} />}</Shown>
      </Card>
      <Shown of={attempts}>{(list) => list.ranks.length ? (
        <Card title={t("job.ranks")}>
          <table class="plain">
            <thead><tr><th class="number">{t("job.rank")}</th><th>{t("job.node")}</th><th>{t("job.devices")}</th><th>{t("job.exit")}</th></tr></thead>
            <tbody>{list.ranks.map((rank) => <tr key={rank.rank}><td class="number">{rank.rank}</td><td>{rank.node}</td><td>{rank.devices.join(", ") || "–"}</td><td>{rank.exit || (rank.ended_ms ? "" : rank.started_ms ? t("state.running") : t("state.starting"))}</td></tr>)}</tbody>
          </table>
        </Card>
      ) : null}</Shown>
      <Foretold of={of} />
      <Cost of={of} />
    </div>
  );
}

function Ended(props: { of: JobView }) {
  const { of } = props;
  return (
    <Card title={t(`job.ended_${of.state}`)}>
      <p>{of.reason || t(`job.ended_${of.state}_text`)}</p>
      {of.exit_code !== null ? <p class="faint">{t("job.exit_code", { code: of.exit_code })}</p> : null}
      {of.exit_signal ? <p class="faint">{t("job.exit_signal", { signal: of.exit_signal })}</p> : null}
      {of.state === "failed" ? <p><A to={`/jobs/${of.id}?tab=log`} class="button">{t("job.see_log")}</A></p> : null}
    </Card>
  );
}

/** Why it waits, with numbers; when it should start; and the edits that would help, each a button. */
function Why(props: { of: JobView }) {
  const { of } = props;
  const why = useGet<Explanation>(`/jobs/${of.id}/explanation`);
  useFresh(["jobs"], why, 5_000);
  const [edit, setEdit] = useState<Edit | null>(null);
  return (
    <Card title={of.state === "waiting" ? t("job.why") : t("job.now")}>
      <Shown of={why}>{(found) => (
        <div class="why">
          <p class="why-text">{found.text}</p>
          {found.elsewhere ? <p class="faint">{found.elsewhere}</p> : null}
          {found.constraints?.length ? (
            <ul class="constraints">
              {found.constraints.map((one) => <li key={one.code + one.where + one.text}><strong>{word("reason", one.code)}</strong> {one.text}{one.where ? <span class="faint"> ({one.where})</span> : null}</li>)}
            </ul>
          ) : null}
          {of.state === "waiting" ? <Start of={found} /> : null}
          {found.stop ? <p class="banner">{t("job.leaving", { reason: word("stop", found.stop.reason), span: span(found.stop.grace_left_ms ?? 0) })}{found.stop.beneficiary ? <> <A to={`/jobs/${found.stop.beneficiary}`}>{`#${found.stop.beneficiary}`}</A></> : null}</p> : null}
          {found.ahead ? <p>{t("job.ahead", { n: found.ahead })} {(found.ahead_first ?? []).map((id) => <A key={id} to={`/jobs/${id}`} class="job-link">{`#${id}`}</A>)}</p> : null}
          {found.blockers?.length ? <p>{t("job.blockers")} {found.blockers.slice(0, 10).map((id) => <A key={id} to={`/jobs/${id}`} class="job-link">{`#${id}`}</A>)}</p> : null}
          {found.edits?.length ? (
            <>
              <h3>{t("job.edits")}</h3>
              <ul class="edits">
                {found.edits.map((one) => (
                  <li key={one.path + one.text}>
                    <button type="button" onClick={() => setEdit(one)}>{one.text}</button>
                    <span class="faint">{one.starts_now ? t("job.edit_starts") : ""}{one.victims?.length ? ` ${t("job.edit_victims", { n: one.victims.length })}` : ""}</span>
                  </li>
                ))}
              </ul>
            </>
          ) : null}
          {found.edits_note ? <p class="faint">{found.edits_note}</p> : null}
        </div>
      )}</Shown>
      {edit ? <Apply edit={edit} job={of.id} onClose={() => setEdit(null)} onDone={why.reload} /> : null}
    </Card>
  );
}

function Start(props: { of: Explanation }) {
  const { start_interval_ms: interval, start_likely_ms: likely, start_note: remark, start_by_ms: by } = props.of;
  const [early, late] = (interval ?? []) as number[];
  return (
    <div class="start">
      <h3>{t("job.start")}</h3>
      {likely ? <p><Time ms={likely} relative /> (<Time ms={likely} />)</p> : by ? <p>{t("job.start_by")} <Time ms={by} /></p> : null}
      {early && late ? <p class="faint">{t("job.start_between")} <Time ms={early} /> – <Time ms={late} /></p> : null}
      {remark && !likely ? <p class="faint">{remark}</p> : null}
    </div>
  );
}

const EDITABLE = ["priority", "queue", "preemptible", "time_limit", "max_wait"];

/** An edit that would help: of the job it is made; of the request it says how to submit it anew; of the cluster it goes to an admin. */
function Apply(props: { edit: Edit; job: number; onClose: () => void; onDone: () => void }) {
  const { edit } = props;
  const value = Array.isArray(edit.new) ? edit.new.join(",") : String(edit.new);
  if (edit.kind === "request" && EDITABLE.includes(edit.path)) {
    return (
      <Confirm title={edit.text} action={t("save")} onClose={props.onClose} run={async () => {
        const done = await post<ActionAnswer>("/jobs/actions", { action: "edit", select: { ids: [String(props.job)] }, set: { [edit.path]: edit.new } });
        if (!done.changed) throw new Error(done.unchanged[0]?.text ?? t("action.nothing"));
        props.onDone();
        return t("action.done", { n: done.changed, action: t("action.edit") });
      }}><p>{t("job.edit_field", { path: edit.path, old: String(edit.old), new: value })}</p></Confirm>
    );
  }
  const admin = edit.kind === "cluster";
  return (
    <Dialog title={edit.text} onClose={props.onClose}>
      <div class="dialog-body">
        <p>{t(admin ? "job.edit_admin" : "job.edit_resubmit")}</p>
        <Copy text={admin ? `penstock admin set ${edit.path}=${value}` : `${edit.path}: ${value}`} />
        {admin ? <p><A to={`/whatif?set=${encodeURIComponent(`${edit.path}=${value}`)}`} class="button">{t("job.edit_try")}</A></p> : <p><A to={`/submit?from=${props.job}&set=${encodeURIComponent(`${edit.path}=${value}`)}`} class="button">{t("job.edit_form")}</A></p>}
      </div>
      <footer class="dialog-foot"><button type="button" onClick={props.onClose}>{t("close")}</button></footer>
    </Dialog>
  );
}

/** What the log says of why it failed or stands still, with its evidence and what to do. */
function Diagnosed(props: { of: JobView }) {
  const wanted = props.of.state === "failed" || props.of.reason.startsWith("hang");
  const found = useGet<Diagnosis>(wanted ? `/jobs/${props.of.id}/diagnosis` : "");
  if (!wanted) return null;
  return (
    <Card title={t("job.diagnosis")}>
      <Shown of={found}>{(one) => (
        <>
          <p class="why-text">{one.summary}</p>
          <ul class="lines">{one.evidence.map((line) => <li key={line.seq + line.text}><Time ms={line.time_ms} /> {line.text} <span class="faint">{t("job.record_seq", { seq: line.seq })}</span></li>)}</ul>
          {one.suggestions.length ? <><h3>{t("job.suggestions")}</h3><ul class="edits">{one.suggestions.map((text) => <li key={text}>{text}</li>)}</ul></> : null}
        </>
      )}</Shown>
    </Card>
  );
}

/** How right the estimates of its start were. */
function Foretold(props: { of: JobView }) {
  const found = useGet<JobEta>(`/jobs/${props.of.id}/eta`);
  const told = found.value?.last ?? found.value?.first;
  if (!told && !found.value?.now) return null;
  const one = found.value!;
  return (
    <Card title={t("job.foretold")}>
      <p>{one.text}</p>
      <dl class="facts">
        {one.first ? <><dt>{t("job.first_estimate")}</dt><dd><Interval of={one.first} /></dd></> : null}
        {one.last && one.last.made_ms !== one.first?.made_ms ? <><dt>{t("job.last_estimate")}</dt><dd><Interval of={one.last} /></dd></> : null}
        {one.started_ms ? <><dt>{t("job.started")}</dt><dd><Time ms={one.started_ms} />{one.in_interval === null || one.in_interval === undefined ? null : <span class="faint"> {t(one.in_interval ? "job.in_interval" : "job.off_interval")}</span>}</dd></> : null}
      </dl>
    </Card>
  );
}

function Interval(props: { of: ToldEta }) {
  return <><Time ms={props.of.likely_ms} /> <span class="faint">(<Time ms={props.of.early_ms} /> – <Time ms={props.of.late_ms} />, {t("job.made")} <Time ms={props.of.made_ms} />)</span></>;
}

function Cost(props: { of: JobView }) {
  const usage = useGet<UsageList>(props.of.started_ms ? "/usage" : "", { by: "job", job: props.of.id, since: new Date(props.of.submitted_ms).toISOString() });
  if (!props.of.started_ms) return null;
  const row = usage.value?.rows.find((one) => one.job === props.of.id);
  return (
    <Card title={t("job.cost")}>
      {usage.problem ? <Problem of={usage.problem} retry={usage.reload} /> : row ? (
        <dl class="facts">
          <dt>{t("usage.device_hours")}</dt><dd>{deviceHours(row.device_milli_ms)}</dd>
          <dt>{t("usage.measured")}</dt><dd>{row.measured_milli_ms ? `${Math.round((row.used_milli_ms / row.measured_milli_ms) * 100)} %` : "–"}</dd>
          <Measured of={props.of} />
        </dl>
      ) : <p class="faint">{usage.busy ? t("loading") : t("usage.none")}</p>}
    </Card>
  );
}

/** What its nodes measured of its devices so far. */
function Measured(props: { of: JobView }) {
  const { energy_mj, power_mean_mw, busy_milli } = props.of;
  return (
    <>
      {busy_milli === null || busy_milli === undefined ? null : <><dt>{t("job.busy")}</dt><dd>{Math.round(busy_milli / 10)} %</dd></>}
      {energy_mj === null || energy_mj === undefined ? null : (
        <><dt>{t("job.energy")}</dt><dd>{energy(energy_mj)}{power_mean_mw ? <span class="faint"> ({t("job.power_mean", { watts: number(power_mean_mw / 1000) })})</span> : null}</dd></>
      )}
    </>
  );
}

/** What its program reports, by step; and what the scheduler notes of it, by time. */
function Metrics(props: { id: number; live: boolean }) {
  const series = useGet<JobSeriesList>(`/jobs/${props.id}/series`);
  const reported = useGet<ReportedList>(`/jobs/${props.id}/reported`, { rank: Number(query.value.get("rank") ?? 0) });
  useFresh(["jobs"], [series, reported], 5_000, (changes) => !!changes.jobs?.some((one) => one.id === props.id));
  const everyMs = (reported.value?.size_bytes ?? 0) < QUICK_BYTES ? 5_000 : 15_000;
  useEffect(() => {
    const timer = props.live ? setInterval(() => document.hidden || reported.reload(), everyMs) : undefined;
    return () => clearInterval(timer);
  }, [props.live, everyMs, reported.reload]);
  const reports = new Set(reported.value?.metrics.map((one) => one.name));
  return (
    <>
      <Shown of={reported}>{(list) => <Reported of={list} live={props.live} />}</Shown>
      <Shown of={series}>{(list) => list.series.length ? (
        <section class="noted">
          <h2>{t("job.noted")}</h2>
          <div class="grid">
            {list.series.filter((one) => !reports.has(one.name)).map((one) => <Noted key={one.name} of={one} until={list.until_ms} />)}
          </div>
        </section>
      ) : null}</Shown>
    </>
  );
}

/** A report of so many bytes is asked for often. */
const QUICK_BYTES = 256 * 1024;

/** Quantities that stay what they are until they are noted anew. */
const HELD = ["replicas", "devices", "checkpoint"];

function Noted(props: { of: JobSeries; until: number }) {
  const { name, unit } = props.of;
  const held = HELD.includes(name);
  const known = props.of.points as [number, number][];
  const last = known.at(-1);
  const points: [number, number][] = held && last ? [...known, [Math.max(props.until, last[0]), last[1]]] : known;
  const label = has(`series.${name}`) ? t(`series.${name}`) : name;
  const format = unit === "bytes" ? bytes : unit === "share" ? (value: number) => `${Math.round(value * 100)} %` : undefined;
  return (
    <Card title={label}>
      <Curve label={label} unit={unit === "share" || unit === "bytes" ? "" : unit} times={points.map(([ms]) => ms)} lines={[{ name: label, values: points.map(([, value]) => value), held }]} format={format} />
    </Card>
  );
}

function Story(props: { id: number }) {
  const records = useGet<LogRecord[]>(`/jobs/${props.id}/events`);
  useFresh(["jobs"], records, 3_000, (changes) => !!changes.jobs?.some((one) => one.id === props.id));
  const [open, setOpen] = useState<number | null>(null);
  return (
    <Shown of={records}>{(list) => (
      <Card title={t("job.record")} tools={<button type="button" class="small" onClick={() => void get(`/jobs/${props.id}/events`).then((found) => navigator.clipboard?.writeText(JSON.stringify(found, null, 1))).then(() => note(t("copied")))}>{t("copy")}</button>}>
        <p class="faint">{t("job.record_hint")}</p>
        <ol class="story">
          {list.map((record) => {
            const event = record.event as unknown as { type: string } & Record<string, unknown>;
            const { type, ...rest } = event;
            return (
              <li key={record.seq}>
                <Time ms={record.time_ms} /> <button type="button" class="link" aria-expanded={open === record.seq} onClick={() => setOpen(open === record.seq ? null : record.seq)}>{word("event", type)}</button>
                <span class="faint"> {t("job.record_seq", { seq: record.seq })}</span>
                {open === record.seq ? <pre class="json">{JSON.stringify(rest, null, 1)}</pre> : null}
              </li>
            );
          })}
        </ol>
        <Copy text={`penstock audit ${props.id}`} />
      </Card>
    )}</Shown>
  );
}
