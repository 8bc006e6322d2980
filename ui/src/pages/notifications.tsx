// What the viewer is told of, and where to: by ways that administrators have declared.
import { useState } from "preact/hooks";
import { post, send } from "../api/client";
import type { Channels, NotificationList, NotificationMade, NotificationTested } from "../api/types.gen";
import { useGet } from "../api/use";
import { number } from "../format";
import { t, word } from "../i18n";
import { Card, Confirm, Copy, Empty, Field, note, Shown, Time } from "../parts/basics";

const EVENTS = ["start", "success", "failure", "cancelled", "preempted", "requeued", "never", "budget", "exhausted", "node_lost", "node_closed"];
const OF_TENANTS = ["budget", "exhausted"];

export function Notifications() {
  const list = useGet<NotificationList>("/notifications");
  const [making, setMaking] = useState(false);
  const [key, setKey] = useState("");
  const run = (done: Promise<unknown>, text: string) => void done.then(() => { list.reload(); note(text); }, (error: Error) => note(error.message, true));
  const test = async (name: string) => {
    const found = await post<NotificationTested>(`/notifications/${encodeURIComponent(name)}/test`).catch((error: Error) => ({ sent: false, error: error.message, hint: "" }));
    note(found.sent ? t("notify.tested") : `${found.error} ${found.hint ?? ""}`, !found.sent);
  };
  return (
    <Card>
      <p class="faint">{t("notify.hint")}</p>
      <Shown of={list}>{(found) => {
        const none = !found.channels.email_domains.length && !found.channels.webhook_hosts.length && !found.channels.commands.length;
        return (
          <>
            {none ? <Empty title={t("notify.no_channels")} hint={t("notify.no_channels_hint")} /> : <p><button type="button" onClick={() => setMaking(true)}>{t("notify.add")}</button></p>}
            {key ? <div class="banner"><p>{t("notify.key")}</p><Copy text={key} /></div> : null}
            {found.notifications.length ? (
              <table class="plain">
                <thead><tr><th>{t("job.name")}</th><th>{t("notify.to")}</th><th>{t("notify.events")}</th><th class="number">{t("notify.sent")}</th><th>{t("notify.last")}</th><th /></tr></thead>
                <tbody>{found.notifications.map((one) => (
                  <tr key={`${one.owner}/${one.name}`}>
                    <td>{one.name}</td><td>{t(`notify.${one.channel}`)} {one.to}</td><td>{one.events.map((event) => word("notice", event)).join(", ")}{one.tenant ? ` (${one.tenant})` : ""}</td>
                    <td class="number">{number(one.sent)}{one.waiting ? ` (+${number(one.waiting)})` : ""}</td>
                    <td>{one.last_error ? <><Time ms={one.last_error_ms} /> {one.last_error}</> : <Time ms={one.last_sent_ms} />}</td>
                    <td><button type="button" class="small" onClick={() => void test(one.name)}>{t("notify.test")}</button> <button type="button" class="small danger" onClick={() => run(send("DELETE", `/notifications/${encodeURIComponent(one.name)}`), t("notify.removed"))}>{t("remove")}</button></td>
                  </tr>
                ))}</tbody>
              </table>
            ) : none ? null : <Empty title={t("notify.none")} />}
            {making ? <Make of={found.channels} onClose={() => setMaking(false)} onDone={(made) => { setKey(made.signing_key); list.reload(); }} /> : null}
          </>
        );
      }}</Shown>
    </Card>
  );
}

function Make(props: { of: Channels; onClose: () => void; onDone: (made: NotificationMade) => void }) {
  const ways = [...(props.of.email_domains.length ? ["email"] : []), ...(props.of.webhook_hosts.length ? ["webhook", "slack"] : []), ...(props.of.commands.length ? ["command"] : [])];
  const [channel, setChannel] = useState(ways[0]!);
  const [to, setTo] = useState("");
  const [name, setName] = useState("mine");
  const [tenant, setTenant] = useState("");
  const [events, setEvents] = useState<string[]>(["success", "failure", "preempted"]);
  const hints: Record<string, string> = { email: props.of.email_domains.join(", "), webhook: props.of.webhook_hosts.join(", "), slack: props.of.webhook_hosts.join(", "), command: props.of.commands.join(", ") };
  return (
    <Confirm title={t("notify.add")} action={t("save")} onClose={props.onClose} disabled={!to || !name || !events.length} run={async () => {
      const answer = await send("PUT", `/notifications/${encodeURIComponent(name)}`, { body: { channel, to, events, tenant }, key: true });
      props.onDone((await answer.json()) as NotificationMade);
      return t("notify.done", { name });
    }}>
      <Field label={t("job.name")}><input value={name} onInput={(event) => setName(event.currentTarget.value)} /></Field>
      <Field label={t("notify.channel")}><select value={channel} onChange={(event) => setChannel(event.currentTarget.value)}>{ways.map((one) => <option key={one} value={one}>{t(`notify.${one}`)}</option>)}</select></Field>
      <Field label={t("notify.to")} hint={`${t("notify.allowed")} ${hints[channel]}`}><input value={to} onInput={(event) => setTo(event.currentTarget.value)} /></Field>
      <fieldset class="choices"><legend>{t("notify.events")}</legend>
        {EVENTS.map((one) => <label key={one} class="check"><input type="checkbox" checked={events.includes(one)} onChange={(event) => setEvents(event.currentTarget.checked ? [...events, one] : events.filter((other) => other !== one))} /> {word("notice", one)}</label>)}
      </fieldset>
      {events.some((one) => OF_TENANTS.includes(one)) ? <Field label={t("job.tenant")}><input value={tenant} onInput={(event) => setTenant(event.currentTarget.value)} /></Field> : null}
    </Confirm>
  );
}
