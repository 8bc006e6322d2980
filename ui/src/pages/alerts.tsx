// All alerts, most severe first, each with what to do.
import type { AlertList } from "../api/types.gen";
import { useFresh, useGet } from "../api/use";
import { t, word } from "../i18n";
import { A, Card, Empty, Head, Shown } from "../parts/basics";

export function Page() {
  const alerts = useGet<AlertList>("/alerts");
  useFresh(["jobs", "nodes"], alerts, 10_000);
  return (
    <>
      <Head title={t("overview.alerts")} />
      <Shown of={alerts}>{(list) => list.alerts.length ? (
        <Card>
          <ul class="alerts">
            {list.alerts.map((alert) => (
              <li key={alert.code + alert.text}>
                <p><strong>{word("alert", alert.code)}</strong> {alert.text}</p>
                {alert.job_ids.length ? <p>{alert.job_ids.slice(0, 50).map((id) => <A key={id} to={`/jobs/${id}`} class="job-link">{`#${id}`}</A>)}</p> : null}
                {alert.resolve ? <p class="faint">{alert.resolve}</p> : null}
              </li>
            ))}
          </ul>
        </Card>
      ) : <Empty title={t("overview.no_alerts")} />}</Shown>
    </>
  );
}
