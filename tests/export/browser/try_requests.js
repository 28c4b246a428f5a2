// Try to reach URL from the page and from a worker; resolve to the names of the tries that succeeded.
(async (url) => {
  const found = [];
  const attempt = async (name, start) => {
    try {
      await start();
      found.push(name);
    } catch { /* blocked */ }
  };
  const loading = (node, sources) => new Promise((done, fail) => {
    Object.assign(node, { onload: done, onopen: done, onerror: fail, ...sources });
  });
  await attempt("fetch", () => fetch(url, { mode: "no-cors" }));
  await attempt("image", () => loading(new Image(), { src: url }));
  await attempt("socket", () => loading(new WebSocket(url.replace("http", "ws")), {}));
  navigator.sendBeacon(url, "x");
  const style = document.head.appendChild(document.createElement("link"));
  await attempt("style", () => loading(style, { rel: "stylesheet", href: url }));
  const script = document.createElement("script");
  await attempt("script", () => {
    const loaded = loading(script, { src: url });
    document.head.append(script);
    return loaded;
  });
  const form = document.body.appendChild(document.createElement("form"));
  Object.assign(form, { action: url, method: "post" });
  form.submit();
  document.body.appendChild(document.createElement("iframe")).src = url;
  const source = URL.createObjectURL(new Blob([`
    onmessage = ({ data }) => fetch(data, { mode: "no-cors" }).then(() => postMessage(true), () => postMessage(false));
  `]));
  const worker = new Worker(source);
  const reached = new Promise((done) => { worker.onmessage = ({ data }) => done(data); });
  worker.postMessage(url);
  if (await reached) found.push("worker");
  await new Promise((done) => setTimeout(done, 300));
  return found;
})
