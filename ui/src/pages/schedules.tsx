// Jobs that are submitted again and again: when next, what became of the last runs, and the actions on them.
import { useState } from "preact/hooks";
import { maySubmit, me, post, send } from "../api/client";
import type { ScheduleList, ScheduleView } from "../api/types.gen";
import { useFresh, useGet } from "../api/use";
import { number } from "../format";
import { t } from "../i18n";
import { A, Card, Confirm, Empty, Head, note, Shown, Time } from "../parts/basics";
import { query, setQuery } from "../router";

export function Page() {
  const everyone = query.value.get("everyone") === "1";
  const list = useGet<ScheduleList>("/schedules", { everyone });
  useFresh(["jobs"], list, 10_000);
  const [removing, setRemoving] = useState<ScheduleView | null>(null);
  const act = (one: ScheduleView, action: "pause" | "resume" | "run") =>
    void post(`/schedules/${encodeURIComponent(one.name)}/actions`, { action }, { user: one.owner }).then(
      () => { void list.reload(); note(t(`schedule.${action}_done`, { name: one.name })); },
      (error: Error) => note(error.message, true),
    );
  return (
    <>
      <Head title={t("nav.schedules")} />
      <p><label class="check"><input type="checkbox" checked={everyone} onChange={(event) => setQuery({ everyone: event.currentTarget.checked ? "1" : "" })} /> {t("schedule.everyone")}</label></p>
      <Shown of={list}>{(found) => found.schedules.length ? (
        <Card><div class="scroll"><table class="plain">
          <thead><tr><th>{t("job.name")}</th><th>{t("schedule.cron")}</th><th>{t("schedule.next")}</th><th class="number rank-1">{t("schedule.runs")}</th><th class="rank-2">{t("schedule.skipped")}</th><th /></tr></thead>
          <tbody>{found.schedules.map((one) => <Row key={`${one.owner}/${one.name}`} of={one} act={act} remove={setRemoving} />)}</tbody>
        </table></div></Card>
      ) : <Empty title={t("schedule.none")} hint={t("schedule.none_hint")} command="penstock submit nightly.yaml" />}</Shown>
      {removing ? <Confirm title={t("schedule.remove_title", { name: removing.name })} action={t("remove")} danger onClose={() => setRemoving(null)} run={async () => {
        await send("DELETE", `/schedules/${encodeURIComponent(removing.name)}`, { query: { user: removing.owner } });
        void list.reload();
        return t("schedule.removed", { name: removing.name });
      }}><p>{t("schedule.remove_text")}</p></Confirm> : null}
    </>
  );
}

function Row(props: { of: ScheduleView; act: (one: ScheduleView, action: "pause" | "resume" | "run") => void; remove: (one: ScheduleView) => void }) {
  const { of, act } = props;
  const own = of.owner === me.value?.user;
  return (
    <tr data-row>
      <td><A to={`/jobs?search=${encodeURIComponent(of.job_names[0] ?? of.name)}`}>{of.name}</A>{own ? null : <span class="faint"> {of.owner}</span>}{of.tenant ? <p class="faint">{of.tenant}</p> : null}</td>
      <td><code>{of.cron}</code> <span class="faint">{of.zone}</span></td>
      <td>{of.paused ? <strong class="worse">{t("schedule.paused")}</strong> : of.next_ms ? <><Time ms={of.next_ms} relative /> <span class="faint"><Time ms={of.next_ms} /></span></> : t("schedule.ended")}{of.paused && of.paused_why ? <p class="faint">{of.paused_why}</p> : null}</td>
      <td class="number rank-1">{number(of.run_total)}{of.live_runs ? <p class="faint">{t("schedule.live", { n: of.live_runs })}</p> : null}</td>
      <td class="rank-2">{of.skipped_total ? <>{number(of.skipped_total)} <span class="faint">{of.skipped} <Time ms={of.skipped_ms} relative /></span></> : <span class="faint">–</span>}</td>
      <td>{maySubmit() && (own || me.value?.role === "admin" || me.value?.role === "operator") ? <div class="tools">
        <button type="button" class="small" aria-label={t("schedule.run_of", { name: of.name })} onClick={() => act(of, "run")}>{t("schedule.run")}</button>
        <button type="button" class="small" aria-label={t(of.paused ? "schedule.resume_of" : "schedule.pause_of", { name: of.name })} onClick={() => act(of, of.paused ? "resume" : "pause")}>{t(of.paused ? "schedule.resume" : "schedule.pause")}</button>
        <button type="button" class="small danger" aria-label={t("schedule.remove_of", { name: of.name })} onClick={() => props.remove(of)}>{t("remove")}</button>
      </div> : null}</td>
    </tr>
  );
}
