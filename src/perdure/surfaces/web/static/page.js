// What the pages add where scripts run: keys, live regions, lists that go on. Everything works without it.
"use strict";
(() => {
  const all = (selector) => [...document.querySelectorAll(selector)];
  const one = (selector) => document.querySelector(selector);

  // the scheme ---------------------------------------------------------------------------------------------
  const dark = () => {
    const chosen = document.documentElement.dataset.theme;
    return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  };
  one("[data-theme-switch]")?.addEventListener("click", () => {
    const theme = dark() ? "light" : "dark";
    document.documentElement.dataset.theme = theme;
    localStorage.setItem("theme", theme);
  });

  // keys ---------------------------------------------------------------------------------------------------
  const help = one("[data-help-dialog]");
  one("[data-help]")?.addEventListener("click", () => help.showModal());
  const typing = (at) => at.closest("input, textarea, select, [contenteditable]");
  let isGoing = false;

  const step = (by) => {
    const items = all("[data-item]").filter((item) => item.offsetParent !== null);
    if (!items.length) return;
    const at = items.findIndex((item) => item.contains(document.activeElement));
    const next = items[at < 0 ? (by > 0 ? 0 : items.length - 1) : Math.min(items.length - 1, Math.max(0, at + by))];
    const target = next.querySelector("a, summary, button") ?? next;
    target.focus({ preventScroll: true });
    next.scrollIntoView({ block: "nearest" });
  };

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || help?.open) return;
    if (event.key === "Escape" && typing(event.target)) return event.target.blur();
    if (typing(event.target)) return;
    if (isGoing) {
      isGoing = false;
      const link = one(`[data-go="${CSS.escape(event.key)}"]`);
      if (link) { event.preventDefault(); location.assign(link.href); }
      return;
    }
    const does = {
      "/": () => { const field = all("[data-key='/']").pop(); field.focus(); field.select(); },
      "j": () => step(1), "k": () => step(-1), "g": () => { isGoing = true; setTimeout(() => { isGoing = false; }, 1500); },
      "?": () => help?.showModal(),
    }[event.key];
    if (does) { event.preventDefault(); does(); }
  });

  // lists that go on ---------------------------------------------------------------------------------------
  // What goes on from the last group of a list is put into it: its heading does not come a second time.
  const joined = (into, items) => {
    const last = into.lastElementChild, first = items[0];
    if (!first?.dataset.group || last?.dataset.group !== first.dataset.group) return items;
    const more = [...first.querySelector("ul").children];
    last.querySelector("ul").append(...more);
    return [...more, ...items.slice(1)];
  };
  // The address holds how far one has come, so that whoever comes back finds what was shown.
  const longer = () => {
    const at = new URL(location.href);
    at.searchParams.set("pages", Number(at.searchParams.get("pages") ?? 1) + 1);
    history.replaceState(history.state, "", at);
  };
  const goOn = async (link) => {
    if (link.dataset.busy) return;
    link.dataset.busy = "1";
    link.setAttribute("aria-busy", "true");
    const into = one(link.dataset.more), target = link.dataset.more.slice(1);
    try {
      const answer = await fetch(link.href, { headers: { "HX-Request": "true" } });
      if (!answer.ok) throw new Error(String(answer.status));
      const found = new DOMParser().parseFromString(await answer.text(), "text/html");
      const given = [...found.getElementById(target).children], items = joined(into, given);
      into.append(...given.filter((item) => items.includes(item)));
      longer();
      into.closest("[data-live-region]")?.removeAttribute("data-live-region"); // what was grown stays as long as it is
      const following = found.getElementById(`${target}-more`);
      const paragraph = link.closest(".more");
      if (following) paragraph.replaceWith(following); else paragraph.remove();
      items[0]?.querySelector("a, summary")?.focus({ preventScroll: true });
      document.dispatchEvent(new CustomEvent("perdure:grown", { detail: { items } }));
    } catch {
      location.assign(link.href);
    }
  };
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-more]");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
    event.preventDefault();
    goOn(link);
  });

  // live ---------------------------------------------------------------------------------------------------
  const light = one("[data-live]");
  const shine = (isLive) => {
    if (!light) return;
    light.classList.toggle("on", isLive);
    light.title = isLive ? "live: this page follows what happens" : "not live";
    light.setAttribute("aria-label", light.title);
  };
  const waiting = new Map();
  const again = (region) => {
    clearTimeout(waiting.get(region.id));
    waiting.set(region.id, setTimeout(() => {
      const now = document.getElementById(region.id);
      if (!now || now.contains(document.activeElement) && typing(document.activeElement)) return;
      htmx.ajax("GET", now.dataset.from, { target: `#${now.id}`, select: `#${now.id}`, swap: "outerMorph" });
    }, 400));
  };
  const touched = (kind) => all("[data-live-region]")
    .filter((region) => region.dataset.liveRegion.split(" ").includes(kind)).forEach(again);

  let source = null, wasCut = false;
  const listen = () => {
    if (source || document.hidden || !document.body.dataset.events) return;
    source = new EventSource(document.body.dataset.events);
    source.onopen = () => {
      shine(true);
      if (wasCut) all("[data-live-region]").forEach(again);
      wasCut = false;
    };
    source.onerror = () => { shine(false); wasCut = true; };
    for (const kind of ["captured", "memory", "job", "injected"]) source.addEventListener(kind, () => touched(kind));
  };
  // A tab that nobody sees listens to nothing: a browser has few connections to one place.
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) return listen();
    source?.close();
    source = null;
    wasCut = true;
    shine(false);
  });
  addEventListener("pagehide", () => { source?.close(); source = null; wasCut = true; });
  addEventListener("pageshow", listen);

  // What is put in above the place at which one reads does not move it.
  document.addEventListener("htmx:before:swap", (event) => {
    const next = event.target.closest(".turns > .earlier")?.nextElementSibling;
    if (!next) return;
    const top = next.getBoundingClientRect().top;
    const grown = new MutationObserver(() => scrollBy(0, next.getBoundingClientRect().top - top));
    grown.observe(next.parentElement, { childList: true });
    setTimeout(() => grown.disconnect(), 300);
  });
})();
