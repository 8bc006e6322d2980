// One device closed or opened by an operator; why it is closed, and who else uses it.
import { useState } from "preact/hooks";
import { post } from "../api/client";
import type { DeviceAnswer, DeviceView } from "../api/types.gen";
import { time } from "../format";
import { t } from "../i18n";
import { Confirm, Field } from "./basics";

export function WhyClosed(props: { of: DeviceView }) {
  const { closed, taken, users } = props.of;
  return (
    <>
      {closed ? <span class="faint" title={closed.opens_ms ? t("device.opens", { time: time(closed.opens_ms) }) : undefined}>{closed.by === "penstock" ? closed.reason || closed.code : t("device.closed_by", { by: closed.by, reason: closed.reason })}</span> : null}
      {taken ? <span class="faint">{users.length ? users.map((one) => `${one.user || "?"} (${one.program || "?"}, ${one.pid})`).join(", ") : t("device.taken")}</span> : null}
    </>
  );
}

export function ChangeDevice(props: { node: string; of: DeviceView; onClose: () => void; onDone: () => void }) {
  const { of, node } = props;
  const [reason, setReason] = useState("");
  const [evict, setEvict] = useState(false);
  const name = `${node}/${of.index}`;
  const run = async () => {
    const path = `/nodes/${encodeURIComponent(node)}/devices/${of.index}/${of.closed ? "open" : "close"}`;
    const done = await post<DeviceAnswer>(path, undefined, of.closed ? { reason } : { reason, evict: evict ? "true" : "" });
    props.onDone();
    return done.note || t(of.closed ? "device.opened" : "device.is_closed", { name });
  };
  return (
    <Confirm title={t(of.closed ? "device.open_title" : "device.close_title", { name })} action={t(of.closed ? "nodes.open" : "nodes.drain")} danger={!of.closed} onClose={props.onClose} run={run}>
      <p>{t(of.closed ? (of.closed.fault ? "device.open_faulty" : "nodes.open_text") : "device.close_text")}</p>
      <Field label={t("nodes.reason")}><input value={reason} maxLength={1000} onInput={(event) => setReason(event.currentTarget.value)} /></Field>
      {of.closed ? null : <label class="check"><input type="checkbox" checked={evict} onChange={(event) => setEvict(event.currentTarget.checked)} /> {t("nodes.evict")}</label>}
    </Confirm>
  );
}
