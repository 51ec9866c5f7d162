// Data in files of their own. A page from disk may load scripts and nothing else, so each of these
// files is a script that makes one call: `draftscopeData("…")`.

const given = new Map(); // script element → what it handed over

/** The text in the file at an address. The file runs in the page as the page's own scripts do. */
export function dataFrom(address) {
  window.draftscopeData = (text) => given.set(document.currentScript, text);
  const script = document.createElement("script");
  return new Promise((done, fail) => {
    const end = (says) => {
      const text = given.get(script);
      given.delete(script);
      script.remove();
      if (typeof text === "string") done(text);
      else fail(new Error(`${address} ${says}`));
    };
    script.addEventListener("load", () => end("is not a run of Draftscope"));
    script.addEventListener("error", () => end("cannot be read"));
    script.src = address;
    document.head.append(script);
  });
}
