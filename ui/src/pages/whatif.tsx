// The what-if lab: a policy, quota or number of nodes tried on the cluster's own history, and handed to an administrator.
import { useEffect, useState } from "preact/hooks";
import { get, me, post, send } from "../api/client";
import type { GroupOutcome, WhatIfList, WhatIfView } from "../api/types.gen";
import { useGet } from "../api/use";
import { number, span } from "../format";
import { t } from "../i18n";
import { A, Card, Copy, Empty, Field, Head, note, Problem, Shown, Time } from "../parts/basics";
import { query, setQuery } from "../router";

const POLL_MS = 1_000;

export function Page() {
  const list = useGet<WhatIfList>("/whatif");
  const id = query.value.get("id") ?? "";
  const [changes, setChanges] = useState(query.value.get("set") ?? "");
  const [policies, setPolicies] = useState(query.value.get("policies") ?? "");
  const [nodes, setNodes] = useState(query.value.get("nodes") ?? "");
  const [since, setSince] = useState("30d");
  const [problem, setProblem] = useState<unknown>(null);
  const begin = async (event: Event) => {
    event.preventDefault();
    setProblem(null);
    try {
      const words = (text: string) => text.split(/[\n,]/).map((one) => one.trim()).filter(Boolean);
      const view = await post<WhatIfView>("/whatif", { set: changes.split("\n").map((one) => one.trim()).filter(Boolean), policies: words(policies), nodes: nodes.trim(), since: since.trim() });
      list.reload();
      setQuery({ id: view.id }, { replace: false });
    } catch (error) {
      setProblem(error);
    }
  };
  return (
    <>
      <Head title={t("nav.whatif")} sub={t("whatif.lead")} />
      <div class="grid">
        <Card title={t("whatif.try")}>
          <form onSubmit={begin}>
            <Field label={t("whatif.set")} hint={t("whatif.set_hint")}><textarea rows={3} value={changes} onInput={(event) => setChanges(event.currentTarget.value)} placeholder="queue.research.max.devices=16" /></Field>
            <Field label={t("whatif.policies")} hint={t("whatif.policies_hint")}><input value={policies} onInput={(event) => setPolicies(event.currentTarget.value)} placeholder="fair_share+easy, fifo+easy" /></Field>
            <Field label={t("whatif.nodes")} hint={t("whatif.nodes_hint")}><input value={nodes} onInput={(event) => setNodes(event.currentTarget.value)} placeholder="+4xH100" /></Field>
            <Field label={t("whatif.since")}><input value={since} onInput={(event) => setSince(event.currentTarget.value)} /></Field>
            {problem ? <Problem of={problem} /> : null}
            <button type="submit" class="primary" disabled={!changes.trim() && !policies.trim() && !nodes.trim()}>{t("whatif.go")}</button>
          </form>
        </Card>
        <Card title={t("whatif.latest")}>
          <Shown of={list}>{(found) => found.whatifs.length ? (
            <ul class="lines">{found.whatifs.map((one) => <li key={one.id}><A to={`/whatif?id=${one.id}`}>{titleOf(one)}</A> <span class="faint">{t(`whatif.state_${one.state}`)} · {one.user} · <Time ms={one.created_ms} relative /></span></li>)}</ul>
          ) : <Empty title={t("whatif.none")} hint={t("whatif.none_hint")} />}</Shown>
        </Card>
      </div>
      {id ? <Result key={id} id={id} onChanged={list.reload} /> : null}
    </>
  );
}

function titleOf(one: WhatIfView): string {
  return [...(one.asked.set ?? []), ...(one.asked.policies ?? []), one.asked.nodes].filter(Boolean).join(", ") || one.id;
}

function Result(props: { id: string; onChanged: () => void }) {
  const [view, setView] = useState<WhatIfView | null>(null);
  const [problem, setProblem] = useState<unknown>(null);
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const look = () => get<WhatIfView>(`/whatif/${encodeURIComponent(props.id)}`).then((found) => {
      setView(found);
      if (found.state === "queued" || found.state === "running") timer = setTimeout(look, POLL_MS);
      else props.onChanged();
    }, setProblem);
    void look();
    return () => clearTimeout(timer);
  }, [props.id]);
  if (problem) return <Problem of={problem} />;
  if (!view) return <p class="loading" role="status">{t("loading")}</p>;
  const cancel = () => void send("DELETE", `/whatif/${encodeURIComponent(props.id)}`).then(() => { props.onChanged(); setQuery({ id: "" }); });
  return (
    <Card title={titleOf(view)} class="below" tools={<button type="button" class="small" onClick={cancel}>{t(view.result ? "remove" : "cancel")}</button>}>
      {view.state === "queued" || view.state === "running" ? <p role="status"><progress max={1} value={view.progress} aria-label={t("whatif.running")} /> {Math.round(view.progress * 100)} % {t("whatif.running")}</p> : null}
      {view.problem ? <p class="problem">{view.problem}</p> : null}
      {view.result ? <Compared of={view} /> : null}
    </Card>
  );
}

const ROWS: [string, (of: GroupOutcome) => number, (value: number) => string, boolean][] = [
  ["wait_p50", (of) => of.wait_p50_ms, span, true], ["wait_p95", (of) => of.wait_p95_ms, span, true], ["wait_mean", (of) => of.wait_mean_ms, span, true],
  ["completion_p50", (of) => of.completion_p50_ms, span, true], ["completion_p95", (of) => of.completion_p95_ms, span, true],
  ["starts", (of) => of.starts, number, false], ["preemptions", (of) => of.preemptions, number, true], ["unfinished", (of) => of.unfinished, number, true], ["device_hours", (of) => of.device_hours, (value) => number(value, 1), false],
];

function Compared(props: { of: WhatIfView }) {
  const result = props.of.result!;
  const { before, after } = result;
  return (
    <>
      <p class="faint">{t("whatif.jobs", { n: result.jobs })} · <Time ms={result.from_ms} /> – <Time ms={result.until_ms} /> · {t("whatif.trust", { real: span(result.waited_p50_ms), replayed: span(before.whole.wait_p50_ms) })}</p>
      {result.notes.map((remark) => <p key={remark} class="faint">{remark}</p>)}
      <table class="plain compared">
        <thead><tr><th>{t("whatif.measure")}</th><th class="number">{t("whatif.before")}</th>{after.map((one) => <th key={one.outcome.name} class="number">{one.outcome.name}</th>)}</tr></thead>
        <tbody>
          <tr><td>{t("whatif.utilisation")}</td><td class="number">{Math.round(before.utilisation * 100)} %</td>{after.map((one) => <td key={one.outcome.name} class="number">{Math.round(one.outcome.utilisation * 100)} %</td>)}</tr>
          {ROWS.map(([key, of, show, less]) => (
            <tr key={key}><td>{t(`whatif.${key}`)}</td><td class="number">{show(of(before.whole))}</td>{after.map((one) => <td key={one.outcome.name} class="number"><Difference before={of(before.whole)} after={of(one.outcome.whole)} show={show} less={less} /></td>)}</tr>
          ))}
          {before.whole.cost ? <tr><td>{t("money.amount")}</td><td class="number">{before.whole.cost} {result.currency}</td>{after.map((one) => <td key={one.outcome.name} class="number">{one.outcome.whole.cost} {result.currency}</td>)}</tr> : null}
        </tbody>
      </table>
      {after.map((one, at) => (
        <section key={one.outcome.name}>
          <h3>{one.outcome.name}: {t("whatif.sooner", { n: one.sooner })}, {t("whatif.later", { n: one.later })}</h3>
          <details><summary>{t("whatif.by_tenant")}</summary>
            <table class="plain"><thead><tr><th>{t("job.tenant")}</th><th class="number">{t("whatif.wait_p50")}</th><th class="number">{t("whatif.after")}</th></tr></thead>
              <tbody>{Object.entries(before.by_tenant).map(([tenant, group]) => <tr key={tenant}><td>{tenant}</td><td class="number">{span(group.wait_p50_ms)}</td><td class="number">{span(one.outcome.by_tenant[tenant]?.wait_p50_ms ?? 0)}</td></tr>)}</tbody></table>
          </details>
          {one.most_affected.length ? (
            <details><summary>{t("whatif.affected")}</summary>
              <table class="plain"><thead><tr><th>{t("nav.jobs")}</th><th>{t("job.user")}</th><th class="number">{t("whatif.before")}</th><th class="number">{t("whatif.after")}</th></tr></thead>
                <tbody>{one.most_affected.slice(0, 50).map((job) => <tr key={job.job}><td><A to={`/jobs/${job.job}`}>{`#${job.job}`}</A> {job.name}</td><td>{job.user}</td><td class="number">{span(job.wait_before_ms)}</td><td class="number">{span(job.wait_after_ms)}</td></tr>)}</tbody></table>
            </details>
          ) : null}
          <HandOver of={props.of} at={at} />
        </section>
      ))}
    </>
  );
}

function Difference(props: { before: number; after: number; show: (value: number) => string; less: boolean }) {
  const change = props.before ? (props.after - props.before) / props.before : 0;
  const sign = Math.abs(change) < 0.005 ? "=" : change < 0 ? "▼" : "▲";
  const kind = sign === "=" ? "faint" : change < 0 === props.less ? "better" : "worse";
  return <>{props.show(props.after)} <span class={kind}>{sign}{sign === "=" ? "" : ` ${Math.abs(Math.round(change * 100))} %`}</span></>;
}

/** The change as a link and a command for an administrator; administrators switch it on in their page. */
function HandOver(props: { of: WhatIfView; at: number }) {
  const rules = props.of.rules[props.at];
  if (!rules?.set.length) return null;
  const query = rules.set.map((one) => `set=${encodeURIComponent(one)}`).join("&");
  const to = `/admin?tab=policy&${query}&base=${props.of.base}`;
  return (
    <p class="tools">
      {me.value?.role === "admin" ? <A to={to} class="button primary">{t("whatif.switch_on")}</A> : <button type="button" onClick={() => void navigator.clipboard?.writeText(new URL(to.slice(1), new URL("../", import.meta.url)).href).then(() => note(t("whatif.copied")))}>{t("whatif.hand_over")}</button>}
      <Copy text={`penstock admin set ${rules.set.map((one) => `'${one}'`).join(" ")}`} />
    </p>
  );
}
