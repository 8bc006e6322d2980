// The tree of queues: what each is guaranteed, uses, borrows and lends, who waits in it, and what starts next.
import { useMemo, useState } from "preact/hooks";
import type { QueueList, QueueView, QuotaList, QuotaRow } from "../api/types.gen";
import { useFresh, useGet } from "../api/use";
import { amount, number } from "../format";
import { t, word } from "../i18n";
import { A, Bar, Card, Empty, Head, Shown } from "../parts/basics";

export function Page() {
  const queues = useGet<QueueList>("/queues");
  const quotas = useGet<QuotaList>("/quotas");
  useFresh(["jobs"], [queues, quotas], 4_000);
  const [resource, setResource] = useState("devices");
  const resources = useMemo(() => [...new Set(["devices", ...(quotas.value?.quotas.map((row) => row.resource) ?? [])])], [quotas.value]);
  return (
    <>
      <Head title={t("nav.queues")}>
        <label>{t("queues.resource")} <select value={resource} onChange={(event) => setResource(event.currentTarget.value)}>{resources.map((one) => <option key={one} value={one}>{word("resource", one)}</option>)}</select></label>
      </Head>
      <p class="legend">
        {["used", "borrowed", "lent", "free"].map((kind) => <span key={kind}><span class={`swatch piece-${kind}`} aria-hidden="true" /> {t(`queues.${kind}`)}</span>)}
      </p>
      <Shown of={queues}>{(list) => list.queues.length ? <Tree queues={list.queues} quotas={quotas.value?.quotas ?? []} resource={resource} /> : <Empty title={t("queues.none")} hint={t("queues.none_hint")} command="penstock admin add queue.research" />}</Shown>
      <div class="grid">
        <Card title={t("queues.tenants")}><Shown of={quotas}>{(list) => <Tenants of={list} resource={resource} />}</Shown></Card>
        <Card title={t("queues.holders")}>
          <Shown of={quotas}>{(list) => {
            const rows = list.holders.filter((one) => one.resource === resource).sort((a, b) => b.used - a.used).slice(0, 30);
            return rows.length ? (
              <table class="plain">
                <thead><tr><th>{t("job.user")}</th><th>{t("job.tenant")}</th><th>{t("job.queue")}</th><th class="number">{t("queues.used")}</th><th class="number">{t("nav.jobs")}</th></tr></thead>
                <tbody>{rows.map((one) => <tr key={`${one.user}/${one.tenant}/${one.queue}`}><td><A to={`/jobs?user=${encodeURIComponent(one.user)}&live=1`}>{one.user}</A></td><td>{one.tenant}</td><td>{one.queue}</td><td class="number">{amount(one.used, resource)}</td><td class="number">{number(one.jobs)}</td></tr>)}</tbody>
              </table>
            ) : <Empty title={t("queues.no_holders")} />;
          }}</Shown>
        </Card>
      </div>
    </>
  );
}

function Tree(props: { queues: QueueView[]; quotas: QuotaRow[]; resource: string }) {
  const [closed, setClosed] = useState<Set<string>>(new Set());
  const names = new Set(props.queues.map((queue) => queue.name));
  const rows: { queue: QueueView; depth: number; leaf: boolean }[] = [];
  const visit = (parent: string, depth: number) => {
    for (const queue of props.queues.filter((one) => (names.has(one.parent) ? one.parent : "") === parent)) {
      rows.push({ queue, depth, leaf: !props.queues.some((one) => one.parent === queue.name) });
      if (!closed.has(queue.name) && depth < 20) visit(queue.name, depth + 1);
    }
  };
  visit("", 1);
  const toggle = (name: string) => setClosed((known) => {
    const next = new Set(known);
    if (!next.delete(name)) next.add(name);
    return next;
  });
  return (
    <div class="table-box tree" role="region" aria-label={t("nav.queues")} tabIndex={0}>
      <table role="treegrid" aria-label={t("nav.queues")}>
        <thead><tr><th scope="col">{t("job.queue")}</th><th scope="col" class="wide">{t("queues.use")}</th><th scope="col" class="number">{t("queues.used")}</th><th scope="col" class="number rank-1">{t("queues.guaranteed")}</th><th scope="col" class="number rank-2">{t("queues.maximum")}</th><th scope="col" class="number">{t("queues.waiting")}</th><th scope="col" class="number rank-1">{t("queues.active")}</th><th scope="col" class="rank-2">{t("queues.next")}</th><th scope="col" class="rank-3">{t("queues.policy")}</th></tr></thead>
        <tbody>
          {rows.map(({ queue, depth, leaf }) => {
            const quota = props.quotas.find((row) => row.kind === "queue" && row.name === queue.name && row.resource === props.resource);
            return (
              <tr key={queue.name} role="row" aria-level={depth} aria-expanded={leaf ? undefined : !closed.has(queue.name)} data-row={queue.name}>
                <td role="gridcell" class={`depth-${Math.min(depth, 6)}`}>
                  {leaf ? <span class="twig" aria-hidden="true" /> : <button type="button" class="twig" aria-label={t(closed.has(queue.name) ? "queues.unfold" : "queues.fold", { queue: queue.name })} onClick={() => toggle(queue.name)}>{closed.has(queue.name) ? "▸" : "▾"}</button>}
                  <A to={`/jobs?queue=${encodeURIComponent(queue.name)}&live=1`}>{queue.name}</A>
                </td>
                <td role="gridcell" class="wide">{quota ? <QuotaBar of={quota} /> : null}</td>
                <td role="gridcell" class="number">{quota ? amount(quota.used, props.resource) : "–"}{quota?.borrowed ? <span class="faint"> (+{amount(quota.borrowed, props.resource)})</span> : null}</td>
                <td role="gridcell" class="number rank-1">{quota?.guaranteed ? amount(quota.guaranteed, props.resource) : "–"}</td>
                <td role="gridcell" class="number rank-2">{quota?.maximum !== null && quota?.maximum !== undefined ? amount(quota.maximum, props.resource) : "–"}</td>
                <td role="gridcell" class="number">{number(queue.waiting)}{queue.blocked ? <span class="faint" title={t("queues.blocked")}> +{number(queue.blocked)}</span> : null}</td>
                <td role="gridcell" class="number rank-1">{number(queue.active)}</td>
                <td role="gridcell" class="rank-2">{queue.next_jobs.slice(0, 3).map((job) => <A key={job.id} to={`/jobs/${job.id}`} class="job-link">{`#${job.id}`}</A>)}</td>
                <td role="gridcell" class="rank-3">{word("policy", queue.policy)}</td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </div>
  );
}

/** Used within the guarantee, borrowed beyond it, lent of it, and what is left. */
function QuotaBar(props: { of: QuotaRow }) {
  const { used, guaranteed, borrowed, lent, maximum } = props.of;
  const whole = Math.max(maximum ?? 0, guaranteed, used, 1);
  const own = Math.max(0, used - borrowed);
  return <Bar label={props.of.name} whole={whole} parts={[
    { kind: "used", value: own, label: t("queues.used") },
    { kind: "borrowed", value: borrowed, label: t("queues.borrowed") },
    { kind: "lent", value: Math.min(lent, Math.max(0, whole - used)), label: t("queues.lent") },
  ]} />;
}

function Tenants(props: { of: QuotaList; resource: string }) {
  const rows = props.of.quotas.filter((row) => row.kind !== "queue" && row.resource === props.resource);
  if (!rows.length) return <Empty title={t("queues.no_tenants")} />;
  return (
    <table class="plain">
      <tbody>{rows.map((row) => <tr key={row.kind + row.name}><td>{row.name}</td><td class="wide"><QuotaBar of={row} /></td><td class="number">{amount(row.used, props.resource)} / {row.maximum === null ? "–" : amount(row.maximum, props.resource)}</td></tr>)}</tbody>
    </table>
  );
}
