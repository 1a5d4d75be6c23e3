// What the chat adds where scripts run: words as they come, and forms that leave the page as it is.
"use strict";
(() => {
  const find = () => document.getElementById("conversation");
  const typing = () => find()?.contains(document.activeElement) && document.activeElement.matches("input, textarea");
  let partial = "", isLate = false, asking = null;

  // All markup comes from the server; an answer that is being written is only ever text.
  const showPartial = () => {
    const place = document.getElementById("partial");
    if (place) place.textContent = partial;
  };
  const put = (text) => {
    const now = find(), next = new DOMParser().parseFromString(text, "text/html").getElementById("conversation");
    if (!now || !next) return false;
    const open = new Set([...now.querySelectorAll("details[id][open]")].map((one) => one.id));
    const known = new Set([...now.querySelectorAll("details[id]")].map((one) => one.id));
    const isAtEnd = innerHeight + scrollY >= document.body.scrollHeight - 240;
    for (const one of next.querySelectorAll("details[id]")) if (known.has(one.id)) one.open = open.has(one.id);
    const focused = now.contains(document.activeElement) ? document.activeElement : null;
    const name = focused?.closest("[id]")?.id;
    now.replaceWith(next);
    showPartial();
    const question = next.querySelector(".question");
    if (question && !known.has(question.id)) question.scrollIntoView({ block: "nearest" });
    else if (isAtEnd && document.activeElement?.id === "field-text") document.getElementById("say").scrollIntoView({ block: "end" });
    if (name) (document.getElementById(name) ?? document.getElementById("field-text"))?.focus({ preventScroll: true });
    return true;
  };
  // One question at a time: what changes meanwhile is asked for afterwards.
  const again = () => {
    if (typing() || asking) { isLate = true; return; }
    isLate = false;
    asking = fetch(location.href, { headers: { "HX-Request": "true" } })
      .then(async (answer) => { if (answer.ok) put(await answer.text()); })
      .catch(() => {})
      .finally(() => { asking = null; if (isLate && !typing()) again(); });
  };
  document.addEventListener("focusout", () => setTimeout(() => { if (isLate && !typing()) again(); }));

  let source = null;
  const listen = () => {
    if (source || document.hidden || !find()) return;
    source = new EventSource(find().dataset.conversation);
    source.addEventListener("text", (event) => { partial = JSON.parse(event.data); showPartial(); });
    source.addEventListener("change", (event) => { partial = JSON.parse(event.data); again(); });
  };
  const leave = () => { source?.close(); source = null; };
  document.addEventListener("visibilitychange", () => (document.hidden ? leave() : listen()));
  addEventListener("pagehide", leave);
  addEventListener("pageshow", listen);

  const complain = (form, text) => {
    const said = new DOMParser().parseFromString(text, "text/html").querySelector("[data-say] .alert, main > p, .alert");
    form.querySelector(".alert")?.remove();
    const alert = document.createElement("p");
    alert.className = "alert bad";
    alert.setAttribute("role", "alert");
    alert.textContent = said?.textContent ?? "It could not be sent.";
    form.prepend(alert);
  };
  document.addEventListener("submit", async (event) => {
    const form = event.target.closest("[data-chat-form]");
    if (!form || !find() || form.querySelector("[name=after]")) return; // a branch is another page
    event.preventDefault();
    const buttons = [...form.querySelectorAll("button")];
    const body = new FormData(form, event.submitter);
    for (const button of buttons) button.disabled = true;
    try {
      const isUpload = form.enctype === "multipart/form-data";
      const answer = await fetch(form.action, { method: "POST", body: isUpload ? body : new URLSearchParams(body) });
      const text = await answer.text();
      if (!answer.ok) { complain(form, text); return; }
      if (form.hasAttribute("data-say")) { form.reset(); form.querySelector(".alert")?.remove(); form.querySelector("textarea").value = ""; }
      else document.getElementById("field-text")?.focus({ preventScroll: true });
      put(text);
    } catch {
      complain(form, "<p class=alert>The server does not answer. Your message is still here.</p>");
    } finally {
      for (const button of buttons) button.disabled = false;
    }
  });
  document.addEventListener("keydown", (event) => {
    const form = event.target.closest?.("[data-say]");
    if (event.key !== "Enter" || !form || event.target.tagName !== "TEXTAREA") return;
    if (event.shiftKey || event.isComposing || event.altKey) return;
    event.preventDefault();
    form.requestSubmit(form.querySelector("button.primary"));
  });
})();
