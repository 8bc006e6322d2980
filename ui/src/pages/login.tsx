// Signing in: by a one-time link, whose code stands behind the # and so is never sent in an address; by a token.
import { useEffect, useState } from "preact/hooks";
import { logIn, logInWith, token } from "../api/client";
import { share, signedIn } from "../api/live";
import type { SessionView } from "../api/types.gen";
import { t } from "../i18n";
import { Copy, Field, Problem } from "../parts/basics";
import { go, path } from "../router";

export function Login() {
  const [problem, setProblem] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);
  const [given, setGiven] = useState("");
  const [stay, setStay] = useState(false);

  const take = async (session: SessionView, to: string) => {
    token.value = session.token;
    share(session, stay);
    go(to, { replace: true });
    await signedIn();
  };

  useEffect(() => {
    document.title = `${t("login.title")} · Penstock`;
    const code = location.hash.slice(1);
    if (path.value !== "/login" || !code) return;
    history.replaceState(null, "", location.pathname);
    setBusy(true);
    logIn(code).then((session) => take(session, session.path)).catch(setProblem).finally(() => setBusy(false));
  }, []);

  const submit = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    setProblem(null);
    try {
      await take(await logInWith(given.trim()), path.value === "/login" ? "/" : path.value + location.search);
    } catch (error) {
      setProblem(error);
    }
    setBusy(false);
  };

  return (
    <main class="login" id="main">
      <h1>Penstock</h1>
      <p>{t("login.lead")}</p>
      {problem ? <Problem of={problem} /> : null}
      <form onSubmit={submit}>
        <Field label={t("login.token")} hint={t("login.token_hint")}>
          <input type="password" autocomplete="off" value={given} onInput={(event) => setGiven(event.currentTarget.value)} required />
        </Field>
        <label class="check"><input type="checkbox" checked={stay} onChange={(event) => setStay(event.currentTarget.checked)} /> {t("login.stay")}</label>
        <button type="submit" class="primary" disabled={busy || !given.trim()}>{t("login.go")}</button>
      </form>
      <p>{t("login.link_hint")} <Copy text="penstock ui" /></p>
    </main>
  );
}
