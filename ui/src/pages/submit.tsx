// A job from a form: what it would lead to is shown while it is filled in, and the job file that it makes.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { ComponentChildren } from "preact";
import { get, me, post, send } from "../api/client";
import type { JobView, PlanAnswer, PlannedJob, PoolList, QueueList, SubmitAnswer } from "../api/types.gen";
import { useGet } from "../api/use";
import { money } from "../format";
import { t } from "../i18n";
import { EMPTY, ENVIRONMENTS, type Form, type Request, requestOf, scheduleOf } from "../jobform";
import { A, Card, Copy, Empty, Field, Head, note, Problem, Time } from "../parts/basics";
import { go, query } from "../router";
import { yaml } from "../yaml";

const WAIT_MS = 600;

export function Page() {
  const [form, setForm] = useState<Form>(EMPTY);
  const [problem, setProblem] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);
  const pools = useGet<PoolList>("/pools");
  const queues = useGet<QueueList>("/queues");
  const request = useMemo(() => requestOf(form), [form]);
  const schedule = useMemo(() => scheduleOf(form), [form]);
  const text = yaml(schedule ? { ...request, schedule } : request);
  useEffect(() => {
    const from = query.value.get("from");
    if (from) void get<JobView>(`/jobs/${from}`).then((job) => setForm((known) => ({ ...known, name: job.name, command: job.command.at(-1) ?? "", devices: String(job.replicas ? Math.round(job.devices / job.replicas) : job.devices), replicas: String(job.replicas), queue: job.queue, tenant: job.tenant, priority: String(job.priority) }))).then(() => {
      const [path, value] = (query.value.get("set") ?? "").split("=");
      if (path && path in EMPTY) setForm((known) => ({ ...known, [path]: value ?? "" }));
    }, setProblem);
  }, []);
  const set = (name: keyof Form) => (event: { currentTarget: { value: string } }) => setForm((known) => ({ ...known, [name]: event.currentTarget.value }));
  const submit = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    setProblem(null);
    try {
      if (schedule) {
        await send("PUT", `/schedules/${encodeURIComponent(form.name.trim())}`, { body: { ...request, schedule } });
        note(t("schedule.done", { name: form.name.trim() }));
        return go("/schedules");
      }
      const done = await post<SubmitAnswer>("/jobs", request);
      note(t("submit.done", { n: done.jobs.length, id: done.jobs[0]?.id ?? 0 }));
      go(done.jobs.length === 1 ? `/jobs/${done.jobs[0]!.id}` : "/jobs");
    } catch (error) {
      setProblem(error);
      setBusy(false);
    }
  };
  if (me.value && !me.value.submits.length && me.value.role !== "admin") return <><Head title={t("nav.submit")} /><Empty title={t("submit.may_not")} hint={t("submit.may_not_hint")} /></>;
  return (
    <>
      <Head title={t("nav.submit")} />
      <div class="grid">
        <Card>
          <form onSubmit={submit}>
            <Field label={t("job.command")} hint={t("submit.command_hint")}><textarea rows={3} value={form.command} required onInput={set("command")} placeholder="python train.py" /></Field>
            <div class="fields">
              <Field label={t("job.name")}><input value={form.name} onInput={set("name")} placeholder="train" /></Field>
              <Field label={t("submit.devices")}><input type="number" min="0" value={form.devices} onInput={set("devices")} /></Field>
              <Field label={t("submit.replicas")}><input type="number" min="1" value={form.replicas} onInput={set("replicas")} placeholder="1" /></Field>
              <Field label={t("job.time_limit")}><input value={form.time_limit} onInput={set("time_limit")} placeholder="4h" /></Field>
              <Field label={t("job.queue")}><select value={form.queue} onChange={set("queue")}><option value="">{me.value?.default_queue || t("submit.default")}</option>{queues.value?.queues.map((queue) => <option key={queue.name} value={queue.name}>{queue.name}</option>)}</select></Field>
              <Field label={t("job.tenant")}><select value={form.tenant} onChange={set("tenant")}><option value="">{me.value?.default_tenant || t("submit.default")}</option>{me.value?.submits.map((tenant) => <option key={tenant} value={tenant}>{tenant}</option>)}</select></Field>
              <Field label={t("nodes.pool")}><select value={form.pool} onChange={set("pool")}><option value="">{t("submit.default")}</option>{pools.value?.pools.map((pool) => <option key={pool.name} value={pool.name}>{pool.name}</option>)}</select></Field>
              <Field label={t("device.model")}><input value={form.model} onInput={set("model")} placeholder={t("submit.any")} /></Field>
              <Field label="CPU"><input type="number" min="0" step="0.1" value={form.cpus} onInput={set("cpus")} placeholder="1" /></Field>
              <Field label={t("nodes.memory")}><input value={form.memory} onInput={set("memory")} placeholder="16GiB" /></Field>
              <Field label={t("job.priority")}><input value={form.priority} onInput={set("priority")} placeholder={t("submit.priority_hint")} /></Field>
              <Field label={t("job.array")}><input value={form.array} onInput={set("array")} placeholder="0-9%4" /></Field>
            </div>
            <Field label={t("submit.workdir")}><input value={form.workdir} onInput={set("workdir")} placeholder="/home/ann/project" /></Field>
            <Check label={t("job.preemptible")} on={form.preemptible} set={(on) => setForm({ ...form, preemptible: on })} />
            <Brought form={form} set={set} />
            <Section title={t("submit.saving")}>
              <div class="fields">
                <Field label={t("submit.replicas_max")} hint={t("submit.replicas_max_hint")}><input type="number" min="1" value={form.replicas_max} onInput={set("replicas_max")} /></Field>
                <Field label={t("submit.batch_min")} hint={t("submit.batch_min_hint")}><input type="number" min="1" value={form.batch_min} onInput={set("batch_min")} /></Field>
                <Field label={t("submit.batch_max")}><input type="number" min="1" value={form.batch_max} onInput={set("batch_max")} /></Field>
                <Field label={t("submit.batch_device")} hint={t("submit.batch_device_hint")}><input type="number" min="1" value={form.batch_device} onInput={set("batch_device")} /></Field>
                <Field label={t("submit.interval")} hint={t("submit.interval_hint")}><input value={form.interval} onInput={set("interval")} placeholder="10m" /></Field>
              </div>
              <Check label={t("submit.shared")} on={form.shared} set={(on) => setForm({ ...form, shared: on })} />
            </Section>
            <Section title={t("submit.schedule")}>
              <div class="fields">
                <Field label={t("schedule.cron")} hint={t("schedule.cron_hint")}><input value={form.cron} onInput={set("cron")} placeholder="0 3 * * MON-FRI" /></Field>
                <Field label={t("schedule.zone")}><input value={form.zone} onInput={set("zone")} placeholder={Intl.DateTimeFormat().resolvedOptions().timeZone} /></Field>
                <Field label={t("schedule.overlap")}><select value={form.overlap} onChange={set("overlap")}><option value="">{t("submit.default")}</option>{["skip", "queue", "allow"].map((one) => <option key={one} value={one}>{t(`schedule.overlap_${one}`)}</option>)}</select></Field>
              </div>
              {schedule && !form.name.trim() ? <p class="faint">{t("schedule.needs_name")}</p> : null}
            </Section>
            {problem ? <Problem of={problem} /> : null}
            <p><button type="submit" class="primary" disabled={busy || !form.command.trim() || (!!schedule && !form.name.trim())}>{t(schedule ? "schedule.set" : "submit.go")}</button></p>
          </form>
        </Card>
        <div>
          <Card title={t("submit.plan")}><Plan of={request} ready={!!form.command.trim()} /></Card>
          <Card title={t("submit.file")} class="below"><pre class="json">{text || " "}</pre><Copy text="penstock submit job.yaml" /></Card>
        </div>
      </div>
    </>
  );
}

type Setter = (name: keyof Form) => (event: { currentTarget: { value: string } }) => void;

/** Fields that most jobs do not need: shown on demand. */
function Section(props: { title: string; children: ComponentChildren }) {
  return <details class="section"><summary>{props.title}</summary>{props.children}</details>;
}

function Check(props: { label: string; on: boolean; set: (on: boolean) => void }) {
  return <label class="check"><input type="checkbox" checked={props.on} onChange={(event) => props.set(event.currentTarget.checked)} /> {props.label}</label>;
}

/** What the job brings along: its environment, files that its nodes fetch, and what it needs of them. */
function Brought(props: { form: Form; set: Setter }) {
  const { form, set } = props;
  const python = form.environment && form.environment !== "conda" && form.environment !== "image";
  return (
    <Section title={t("submit.brought")}>
      <div class="fields">
        <Field label={t("submit.environment")}><select value={form.environment} onChange={set("environment")}><option value="">{t("submit.environment_none")}</option>{ENVIRONMENTS.map((one) => <option key={one} value={one}>{t(`submit.environment_${one}`)}</option>)}</select></Field>
        {form.environment ? <Field label={t(`submit.of_${form.environment}`)}><input value={form.environment_of} onInput={set("environment_of")} placeholder={t(`submit.example_${form.environment}`)} /></Field> : null}
        {python ? <Field label={t("submit.python_version")}><input value={form.python_version} onInput={set("python_version")} placeholder="3.12" /></Field> : null}
        <Field label={t("submit.ports")} hint={t("submit.ports_hint")}><input value={form.ports} onInput={set("ports")} placeholder="http, metrics" /></Field>
        <Field label={t("submit.runtime")}><select value={form.runtime} onChange={set("runtime")}><option value="">{t("submit.runtime_none")}</option><option value="ray">{t("submit.runtime_ray")}</option></select></Field>
      </div>
      <Field label={t("submit.setup")} hint={t("submit.setup_hint")}><textarea rows={2} value={form.setup} onInput={set("setup")} placeholder="make -C kernels" /></Field>
      <Field label={t("submit.env")} hint={t("submit.env_hint")}><textarea rows={2} value={form.env} onInput={set("env")} placeholder="LR=0.1" /></Field>
      <Field label={t("submit.inputs")} hint={t("submit.inputs_hint")}><textarea rows={2} value={form.inputs} onInput={set("inputs")} placeholder="data/train.csv https://example.org/train.csv" /></Field>
    </Section>
  );
}

function Plan(props: { of: Request; ready: boolean }) {
  const [plan, setPlan] = useState<PlanAnswer | null>(null);
  const [problem, setProblem] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);
  const number = useRef(0);
  const asked = JSON.stringify(props.of);
  useEffect(() => {
    if (!props.ready) return;
    const own = ++number.current;
    const timer = setTimeout(() => {
      setBusy(true);
      post<PlanAnswer>("/plan", props.of).then(
        (found) => own === number.current && (setPlan(found), setProblem(null), setBusy(false)),
        (error) => own === number.current && (setProblem(error), setPlan(null), setBusy(false)),
      );
    }, WAIT_MS);
    return () => clearTimeout(timer);
  }, [asked, props.ready]);
  if (!props.ready) return <Empty title={t("submit.plan_empty")} />;
  return (
    <div aria-busy={busy} role="status">
      {problem ? <Problem of={problem} /> : null}
      {plan?.jobs.map((job) => <Planned key={job.name} of={job} now={plan.now_ms} />)}
      {busy && !plan ? <p class="loading">{t("submit.planning")}</p> : null}
    </div>
  );
}

function Planned(props: { of: PlannedJob; now: number }) {
  const { of } = props;
  return (
    <>
      <p class="why-text">{of.text}</p>
      <dl class="facts">
        <dt>{t("job.start")}</dt>
        <dd>{of.starts_now ? t("submit.now") : of.start_p50_ms ? <><Time ms={of.start_p50_ms} relative /> <span class="faint">(<Time ms={of.start_p10_ms} /> – <Time ms={of.start_p90_ms} />)</span></> : t("unknown")}</dd>
        {of.price ? <><dt>{t("submit.price")}</dt><dd>{money(of.price.hour_low, of.price.currency, of.price.digits)}{of.price.hour_high !== of.price.hour_low ? ` – ${money(of.price.hour_high, of.price.currency, of.price.digits)}` : ""} {t("submit.per_hour")}{of.price.total_high ? ` · ${money(of.price.total_high, of.price.currency, of.price.digits)} ${t("submit.in_all")}` : ""}</dd></> : null}
        {of.places.length ? <><dt>{t("job.nodes")}</dt><dd>{[...new Set(of.places.map((place) => place.node))].join(", ")}</dd></> : null}
        {of.preempts.length ? <><dt>{t("submit.preempts")}</dt><dd>{of.preempts.map((one) => <A key={one.job_id} to={`/jobs/${one.job_id}`} class="job-link">{`#${one.job_id}`}</A>)}</dd></> : null}
      </dl>
      {of.explanation?.edits?.length ? <><h3>{t("job.edits")}</h3><ul class="edits">{of.explanation.edits.map((edit) => <li key={edit.path + edit.text}>{edit.text}</li>)}</ul></> : null}
    </>
  );
}
