// Who used how much, how well, and what was wasted; quotas stand with the queues.
import type { UsageList, UsageRow, WasteList } from "../api/types.gen";
import { useGet } from "../api/use";
import { deviceHours, money, number } from "../format";
import { t } from "../i18n";
import { A, Bar, Card, Empty, Head, Shown, Tabs } from "../parts/basics";
import { type Column, Table } from "../parts/table";
import { query, setQuery } from "../router";

const BY = ["tenant", "user", "queue", "pool", "node", "job"] as const;
type By = (typeof BY)[number];
const SINCE = ["1d", "7d", "30d", "90d"];
const MAX_STALE_S = 3_600;

export function Page() {
  const q = query.value;
  const by = (BY.includes((q.get("by") ?? "") as By) ? q.get("by") : "tenant") as By;
  const since = SINCE.includes(q.get("range") ?? "") ? q.get("range")! : "30d";
  const tab = q.get("tab") ?? "usage";
  return (
    <>
      <Head title={t("nav.usage")}>
        {SINCE.map((key) => <button key={key} type="button" class="small" aria-pressed={since === key} onClick={() => setQuery({ range: key })}>{key}</button>)}
        <label>{t("usage.by")} <select value={by} onChange={(event) => setQuery({ by: event.currentTarget.value })}>{BY.map((key) => <option key={key} value={key}>{t(`usage.by_${key}`)}</option>)}</select></label>
      </Head>
      <Tabs label={t("nav.usage")} at={tab} onChoose={(key) => setQuery({ tab: key === "usage" ? "" : key })} of={[["usage", t("usage.used")], ["waste", t("usage.waste")]]} />
      {tab === "waste" ? <Waste by={by} since={since} /> : <Used by={by} since={since} />}
    </>
  );
}

function nameOf(row: UsageRow, by: By): string {
  return by === "job" ? `#${row.job}` : row[by] || "–";
}

function linkOf(row: { job: number; tenant: string; user: string; queue: string }, by: By): string {
  if (by === "job") return `/jobs/${row.job}`;
  return by === "tenant" || by === "user" || by === "queue" ? `/jobs?${by}=${encodeURIComponent(row[by])}` : "/nodes";
}

function Used(props: { by: By; since: string }) {
  const { by } = props;
  const usage = useGet<UsageList>("/usage", { by, since: props.since }, MAX_STALE_S);
  const columns: Column<UsageRow>[] = [
    { key: "name", title: t(`usage.by_${by}`), wide: true, cell: (row) => <A to={linkOf(row, by)}>{nameOf(row, by)}</A> },
    { key: "hours", title: t("usage.device_hours"), number: true, cell: (row) => deviceHours(row.device_milli_ms) },
    { key: "bar", title: "", rank: 1, cell: (row) => <Bar label={nameOf(row, by)} whole={most} parts={[{ kind: "used", value: row.device_milli_ms, label: t("usage.device_hours") }]} /> },
    { key: "measured", title: t("usage.measured"), number: true, rank: 1, cell: (row) => (row.measured_milli_ms ? `${Math.round((row.used_milli_ms / row.measured_milli_ms) * 100)} %` : "–") },
    { key: "cpu", title: t("usage.cpu_hours"), number: true, rank: 2, cell: (row) => number(row.cpu_milli_ms / 3_600_000_000, 1) },
    { key: "energy", title: t("usage.energy"), number: true, rank: 2, cell: (row) => (row.powered_milli_ms ? number(row.energy_mj / 3_600_000_000, 2) : "–") },
    { key: "jobs", title: t("nav.jobs"), number: true, cell: (row) => number(row.jobs) },
    { key: "attempts", title: t("job.attempts"), number: true, rank: 3, cell: (row) => number(row.attempts) },
  ];
  const rows = [...(usage.value?.rows ?? [])].sort((a, b) => b.device_milli_ms - a.device_milli_ms);
  const most = Math.max(1, ...rows.map((row) => row.device_milli_ms));
  return <Shown of={usage}>{() => rows.length ? <Table rows={rows} columns={columns} id={(row) => nameOf(row, by)} label={t("usage.used")} /> : <Empty title={t("usage.none")} hint={t("usage.none_hint")} />}</Shown>;
}

function Waste(props: { by: By; since: string }) {
  const waste = useGet<WasteList>("/waste", { by: props.by, since: props.since }, MAX_STALE_S);
  return (
    <Shown of={waste}>{(list) => {
      const rows = [...list.rows].sort((a, b) => b.device_milli_ms - a.device_milli_ms);
      const idle = (row: (typeof rows)[number]) => Math.max(0, row.device_milli_ms - row.used_milli_ms - row.data_milli_ms - row.hang_milli_ms - row.unknown_milli_ms);
      return rows.length ? (
        <Card>
          <p class="faint">{t("usage.waste_hint")}</p>
          <p class="legend">{(["used", "data", "hang", "idle", "unknown"] as const).map((kind) => <span key={kind}><span class={`swatch piece-w-${kind}`} aria-hidden="true" /> {t(`waste.${kind}`)}</span>)}</p>
          <table class="plain">
            <thead><tr><th>{t(`usage.by_${props.by}`)}</th><th class="wide">{t("usage.device_hours")}</th><th class="number">{t("waste.used")}</th>{list.priced ? <th class="number">{t("waste.cost")}</th> : null}</tr></thead>
            <tbody>{rows.slice(0, 200).map((row) => (
              <tr key={`${row.tenant}/${row.user}/${row.queue}/${row.pool}/${row.job}/${row.node}`}>
                <td>{props.by === "job" ? <A to={`/jobs/${row.job}`}>{`#${row.job}`}</A> : row[props.by] || "–"}</td>
                <td class="wide"><Bar label={t("usage.device_hours")} whole={row.device_milli_ms} parts={[
                  { kind: "w-used", value: row.used_milli_ms, label: t("waste.used") }, { kind: "w-data", value: row.data_milli_ms, label: t("waste.data") },
                  { kind: "w-hang", value: row.hang_milli_ms, label: t("waste.hang") }, { kind: "w-idle", value: idle(row), label: t("waste.idle") }, { kind: "w-unknown", value: row.unknown_milli_ms, label: t("waste.unknown") },
                ]} /></td>
                <td class="number">{deviceHours(row.used_milli_ms)} / {deviceHours(row.device_milli_ms)}</td>
                {list.priced ? <td class="number">{money(row.cost - row.used_cost, list.currency, list.digits)}</td> : null}
              </tr>
            ))}</tbody>
          </table>
        </Card>
      ) : <Empty title={t("usage.none")} />;
    }}</Shown>
  );
}
