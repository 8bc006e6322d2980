/** File of the shared worker, put in by the build. */
declare const __WORKER__: string;
/** Files of the catalogues of other languages, put in by the build. */
declare const __TEXTS__: Record<string, string>;

interface TrustedTypesFactory {
  createPolicy(name: string, rules: { createScriptURL(url: string): string }): { createScriptURL(url: string): string };
}
interface Window {
  trustedTypes?: TrustedTypesFactory;
}
declare module "*.css";
