// Signing in: by a one-time link, whose code stands behind the # and so is never sent in an address; by an identity
// provider, which sends the browser back with a code; by a token.
import { useEffect, useState } from "preact/hooks";
import { logIn, logInWith, token } from "../api/client";
import { share, signedIn } from "../api/live";
import { CALLBACK, NotSignedIn, beginSignIn, finishSignIn, providerName } from "../api/signin";
import type { SessionView } from "../api/types.gen";
import { t } from "../i18n";
import { Copy, Field, Problem } from "../parts/basics";
import { go, path } from "../router";

export function Login() {
  const [problem, setProblem] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);
  const [given, setGiven] = useState("");
  const [stay, setStay] = useState(false);
  const [provider, setProvider] = useState("");

  const take = async (session: SessionView, to: string, kept = stay) => {
    token.value = session.token;
    share(session, kept);
    go(to, { replace: true });
    await signedIn();
  };

  useEffect(() => {
    document.title = `${t("login.title")} · Penstock`;
    providerName().then(setProvider).catch(() => undefined);
    if (path.value === CALLBACK) {
      const came = new URLSearchParams(location.search);
      go("/login", { replace: true }); // a code is used once: no address keeps it
      setBusy(true);
      finishSignIn(came)
        .then((found) => take(found.session, found.page, found.stay))
        .catch((error) => setProblem(error instanceof NotSignedIn ? new Error(t(error.message ? "login.provider_refused" : "login.not_signed_in", { why: error.message })) : error))
        .finally(() => setBusy(false));
      return;
    }
    const code = location.hash.slice(1);
    if (path.value !== "/login" || !code) return;
    history.replaceState(null, "", location.pathname);
    setBusy(true);
    logIn(code).then((session) => take(session, session.path)).catch(setProblem).finally(() => setBusy(false));
  }, []);

  const wanted = () => (path.value === "/login" ? "/" : path.value + location.search);

  const leave = () => {
    setBusy(true);
    setProblem(null);
    beginSignIn(wanted(), stay).catch((error) => {
      setProblem(error);
      setBusy(false);
    });
  };

  const submit = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    setProblem(null);
    try {
      await take(await logInWith(given.trim()), wanted());
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
      {provider ? <p><button type="button" class="primary" disabled={busy} onClick={leave}>{t("login.provider", { name: provider })}</button></p> : null}
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
