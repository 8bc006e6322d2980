// What the cluster has, what waits and why, and what needs somebody: at a glance.
import { useEffect, useState } from "preact/hooks";
import { me } from "../api/client";
import { counts } from "../api/live";
import type { AlertList, EtaList, JobList, NodeList, SeriesList } from "../api/types.gen";
import { useFresh, useGet } from "../api/use";
import { now, number, percent } from "../format";
import { t, word } from "../i18n";
import { A, Bar, Card, Empty, Figure, Head, Shown, State, Time } from "../parts/basics";
import { Curve, Ranks } from "../parts/charts";
import { go } from "../router";

const HOURS = 24;

export function Page() {
  const nodes = useGet<NodeList>("/nodes", { limit: 1, fields: "name" });
  const alerts = useGet<AlertList>("/alerts");
  const latest = useGet<JobList>("/jobs", { limit: 8, sort: "newest", finished: true, fields: "id,name,state,user,tenant,submitted_ms,devices,reason" });
  useFresh(["nodes"], nodes, 3_000);
  useFresh(["jobs"], latest, 3_000);
  useFresh(["jobs", "nodes"], alerts, 10_000);
  const sums = counts.value;
  return (
    <>
      <Head title={t("nav.overview")} />
      <div class="figures">
        <Figure to="/nodes" name={t("overview.devices")} value={sums ? `${number(sums.devices_held)} / ${number(sums.devices)}` : "–"} sub={sums ? percent(sums.devices_held, sums.devices) : null} />
        <Figure to="/nodes" name={t("overview.nodes")} value={sums ? `${number(sums.nodes_ready)} / ${number(sums.nodes)}` : "–"} sub={t("overview.nodes_sub")} />
        <Figure to="/jobs?state=running" name={t("overview.running")} value={sums ? number(sums.jobs.by_state.running ?? 0) : "–"} />
        <Figure to="/jobs?state=waiting" name={t("overview.waiting")} value={sums ? number(sums.jobs.by_state.waiting ?? 0) : "–"} />
      </div>
      <div class="grid">
        <Card title={t("overview.by_model")}>
          <Shown of={nodes}>{(list) => <Models of={list.devices} />}</Shown>
        </Card>
        <Card title={t("overview.why")}>
          {sums && Object.keys(sums.jobs.by_reason).length ? (
            <Ranks label={t("overview.why")} onPick={(code) => go(code === "not_in_line" ? "/jobs?state=waiting" : `/jobs?state=waiting&reason=${code}`)}
              of={Object.entries(sums.jobs.by_reason).map(([code, value]) => ({ name: code, text: word("reason", code), value, kind: "waiting" })).sort((a, b) => b.value - a.value)} />
          ) : <Empty title={t("overview.none_waits")} />}
        </Card>
        <Card title={t("overview.use")} class="span">
          <Use />
        </Card>
        <Card title={t("overview.alerts")} tools={<A to="/alerts">{t("all")}</A>}>
          <Shown of={alerts}>{(list) => list.alerts.length ? (
            <ul class="alerts">
              {list.alerts.slice(0, 8).map((alert) => (
                <li key={alert.code + alert.text}>
                  <strong>{word("alert", alert.code)}</strong> {alert.text}
                  {alert.job_ids.slice(0, 5).map((id) => <A key={id} to={`/jobs/${id}`} class="job-link">{`#${id}`}</A>)}
                  {alert.resolve ? <p class="faint">{alert.resolve}</p> : null}
                </li>
              ))}
            </ul>
          ) : <Empty title={t("overview.no_alerts")} />}</Shown>
        </Card>
        <Card title={t("overview.next")}><Next /></Card>
        <Card title={t("overview.latest")} class="span" tools={<A to="/jobs">{t("all")}</A>}>
          <Shown of={latest}>{(list) => list.jobs.length ? (
            <ul class="lines">
              {list.jobs.map((job) => (
                <li key={job.id}><A to={`/jobs/${job.id}`} class="job-link">{`#${job.id}`}</A> <A to={`/jobs/${job.id}`}>{job.name}</A> <State of={job.state} /> <span class="faint">{job.user}</span> <Time ms={job.submitted_ms} relative /></li>
              ))}
            </ul>
          ) : <Empty title={t("overview.no_jobs")} hint={t("overview.no_jobs_hint")} command="penstock run -- echo hello"><p><A to="/submit" class="button">{t("nav.submit")}</A></p></Empty>}</Shown>
        </Card>
      </div>
    </>
  );
}

function Models(props: { of: NodeList["devices"] }) {
  if (!props.of.length) return <Empty title={t("overview.no_devices")} hint={t("overview.no_devices_hint")} command="penstock up --cluster cluster.yaml" />;
  return (
    <table class="plain">
      <thead><tr><th>{t("device.model")}</th><th class="number">{t("device.free")}</th><th class="number">{t("device.used")}</th><th class="number">{t("device.unhealthy")}</th><th class="wide" aria-label={t("overview.devices")} /></tr></thead>
      <tbody>
        {props.of.map((model) => (
          <tr key={`${model.vendor}/${model.model}`}>
            <td><A to={`/nodes?model=${encodeURIComponent(model.model)}`}>{model.model || model.vendor}</A></td>
            <td class="number">{number(model.free)}</td><td class="number">{number(model.used)}</td>
            <td class="number">{number(model.unhealthy + model.closed)}</td>
            <td class="wide"><Bar label={model.model} whole={model.total} parts={[
              { value: model.used, kind: "used", label: t("device.used") },
              { value: model.unhealthy, kind: "unhealthy", label: t("device.unhealthy") },
              { value: model.closed, kind: "closed", label: t("device.closed") },
              { value: model.free, kind: "free", label: t("device.free") },
            ]} /></td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function Use() {
  const [from] = useState(() => new Date(Math.floor(now.value / 60_000) * 60_000 - HOURS * 3_600_000).toISOString());
  const series = useGet<SeriesList>("/series", { names: "cluster_devices_held,cluster_devices_free,jobs_waiting", from, step: "5m" });
  useEffect(() => {
    const timer = setInterval(() => document.hidden || series.reload(), 60_000);
    return () => clearInterval(timer);
  }, [series.reload]);
  return (
    <Shown of={series}>{(list) => {
      const of = (name: string) => list.series.find((one) => one.name === name && !Object.keys(one.labels ?? {}).length)?.values ?? [];
      const times = Array.from({ length: list.points }, (_, at) => list.from_ms + at * list.step_ms);
      return <Curve label={t("overview.use")} times={times} lines={[
        { name: t("device.used"), values: of("cluster_devices_held"), colour: "--used", fill: true },
        { name: t("device.free"), values: of("cluster_devices_free"), colour: "--closed" },
        { name: t("overview.waiting"), values: of("jobs_waiting"), colour: "--waiting", dash: [4, 3] },
      ]} />;
    }}</Shown>
  );
}

function Next() {
  const etas = useGet<EtaList>("/eta", { max_age: 60_000, sort: "likely", limit: 8 }, 600);
  return (
    <Shown of={etas}>{(list) => list.jobs.length ? (
      <ul class="lines">
        {list.jobs.slice(0, 8).map((job) => (
          <li key={job.id}><A to={`/jobs/${job.id}`} class="job-link">{`#${job.id}`}</A> {job.name} <span class="faint">{job.likely_ms ? <>{t("job.likely")} <Time ms={job.likely_ms} relative /></> : t("unknown")}</span></li>
        ))}
      </ul>
    ) : <Empty title={me.value ? t("overview.none_waits") : ""} />}</Shown>
  );
}
