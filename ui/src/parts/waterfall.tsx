// A job's life as bars: waiting, starting, running, each attempt a row, with how it ended.
import { useEffect, useRef } from "preact/hooks";
import type { AttemptList } from "../api/types.gen";
import { span } from "../format";
import { t, word } from "../i18n";
import { A, Time } from "./basics";

type Piece = { kind: string; from: number; to: number; label: string };

export function Waterfall(props: { of: AttemptList; now: number }) {
  const { of, now } = props;
  const begin = of.submitted_ms;
  const end = Math.max(begin + 1_000, of.finished_ms || now);
  const waits = of.waits.map((wait) => ({ kind: "waiting", from: wait.from_ms, to: wait.until_ms || now, label: t("state.waiting") }));
  return (
    <div class="waterfall">
      <div class="waterfall-head"><Time ms={begin} /><span class="faint">{span(end - begin)}</span><Time ms={end} /></div>
      <Row label={t("state.waiting")} pieces={waits} begin={begin} end={end} />
      {of.attempts.map((attempt) => {
        const until = attempt.ended_ms || now;
        const running = attempt.running_ms || until;
        const pieces = [
          { kind: "starting", from: attempt.allocated_ms, to: running, label: t("state.starting") },
          { kind: attempt.outcome && attempt.outcome !== "succeeded" ? outcomeKind(attempt.outcome) : "running", from: running, to: until, label: attempt.outcome ? word("outcome", attempt.outcome) : t("state.running") },
        ];
        return (
          <div key={attempt.number} class="waterfall-attempt">
            <Row label={t("job.attempt_n", { number: attempt.number })} pieces={pieces} begin={begin} end={end} />
            <p class="faint">
              {attempt.outcome ? word("outcome", attempt.outcome) : t("state.running")} · {span(until - attempt.allocated_ms)} · {attempt.nodes.join(", ")}
              {attempt.detail ? ` · ${attempt.detail}` : ""}
              {attempt.beneficiary ? <> · {t("job.made_room")} <A to={`/jobs/${attempt.beneficiary}`}>{`#${attempt.beneficiary}`}</A></> : null}
              {attempt.resumed_step !== null ? ` · ${t("job.resumed_at", { step: attempt.resumed_step })}` : ""}
              {attempt.lost_steps ? ` · ${t("job.lost_steps", { n: attempt.lost_steps })}` : ""}
            </p>
          </div>
        );
      })}
      {of.attempts_left_out ? <p class="faint">{t("left_out", { n: of.attempts_left_out })}</p> : null}
    </div>
  );
}

function outcomeKind(outcome: string): string {
  return outcome === "failed" || outcome === "lost" ? "failed" : "preempted";
}

function Row(props: { label: string; pieces: Piece[]; begin: number; end: number }) {
  const ref = useRef<HTMLDivElement>(null);
  const whole = props.end - props.begin;
  useEffect(() => {
    const spans = ref.current?.children ?? [];
    props.pieces.forEach((piece, at) => {
      const element = spans[at] as HTMLElement;
      element.style.left = `${(Math.max(0, piece.from - props.begin) / whole) * 100}%`;
      element.style.width = `${(Math.max(0, piece.to - piece.from) / whole) * 100}%`;
    });
  });
  const text = props.pieces.map((piece) => `${piece.label} ${span(piece.to - piece.from)}`).join(", ");
  return (
    <div class="waterfall-row">
      <span class="waterfall-label">{props.label}</span>
      <div class="waterfall-track" ref={ref} role="img" aria-label={`${props.label}: ${text}`}>
        {props.pieces.map((piece) => <span key={piece.kind + piece.from} class={`piece-${piece.kind}`} title={`${piece.label} ${span(piece.to - piece.from)}`} />)}
      </div>
    </div>
  );
}
