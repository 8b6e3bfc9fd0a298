"use strict";
// Sorting by headings, moving among numbers with the arrow keys, and what stands behind a number.
(() => {
  const panel = document.getElementById("detail");
  const body = panel.querySelector(".detail-body");
  const said = document.getElementById("said");
  const tables = [...document.querySelectorAll("table.paper")];
  let shown = null;
  let pinned = false;
  let timer = 0;

  // --- sorting -----------------------------------------------------------------------------------------------------
  // Rows stay in their groups: numbers of different groups are not comparable. A third click restores the order.
  const rowsOf = group => [...group.rows].filter(row => !row.classList.contains("band"));
  const original = new Map();
  for (const table of tables) {
    [...table.tBodies].forEach((group, place) => {
      original.set(group, place);
      rowsOf(group).forEach((row, at) => original.set(row, at));
    });
  }

  function keyOf(heading) {
    const table = heading.closest("table");
    const axes = [...table.querySelectorAll("th.axis")];
    const axis = axes.indexOf(heading);
    if (axis >= 0) {
      const shared = axes.filter(one => one.classList.contains("shared")).length;
      const number = text => (text === "" || Number.isNaN(Number(text)) ? text : Number(text));
      if (axis < shared) {
        return { groups: true, read: group => number(group.querySelectorAll("th.shared")[axis].textContent) };
      }
      return { groups: false, read: row => number(row.querySelectorAll("th[scope=row]")[axis - shared].textContent) };
    }
    // Headings of numbers in the order of the columns: the second line first, then those that span both lines.
    const lines = table.tHead.rows;
    const numbers = [...lines[1].cells, ...[...lines[0].cells].filter(one => one.rowSpan === 2 && !one.classList.contains("axis"))];
    const place = numbers.indexOf(heading);
    return {
      groups: false,
      read: row => {
        const text = row.querySelectorAll("td")[place].dataset.value;
        return text === undefined ? null : Number(text);
      },
    };
  }

  function compare(one, other, sign) {
    if (one === null || other === null) return (one === null) - (other === null); // what is missing comes last
    if (typeof one === "number" && typeof other === "number") return sign * (one - other);
    return sign * String(one).localeCompare(String(other), "en");
  }

  function sort(button) {
    const heading = button.parentElement;
    const table = heading.closest("table");
    const text = heading.classList.contains("axis");
    const cycle = text ? ["none", "ascending", "descending"] : ["none", "descending", "ascending"];
    const next = cycle[(cycle.indexOf(heading.getAttribute("aria-sort")) + 1) % 3];
    table.querySelectorAll("[aria-sort]").forEach(one => one.setAttribute("aria-sort", "none"));
    heading.setAttribute("aria-sort", next);
    const key = keyOf(heading);
    const sign = next === "ascending" ? 1 : -1;
    const order = (one, other) => (next === "none" ? 0 : compare(key.read(one), key.read(other), sign)) || original.get(one) - original.get(other);
    const groups = [...table.tBodies];
    const resorted = key.groups ? groups.slice().sort(order) : groups.slice().sort((one, other) => original.get(one) - original.get(other));
    for (const group of resorted) {
      table.append(group);
      const shared = [...group.querySelectorAll("th.shared")];
      const rows = rowsOf(group);
      rows.sort(key.groups ? (one, other) => original.get(one) - original.get(other) : order);
      rows.forEach(row => group.append(row));
      rows[0].prepend(...shared); // the heading of a group stands in its first row
    }
    const words = { none: "as printed", ascending: "ascending", descending: "descending" };
    said.textContent = `${button.textContent}: ${words[next]}`;
  }

  // --- what stands behind a number ----------------------------------------------------------------------------------
  function place() {
    const at = shown.getBoundingClientRect();
    if (!pinned && (at.bottom < 0 || at.top > window.innerHeight)) {
      hide(); // the number was scrolled away, and what stands behind it goes with it
      return;
    }
    const own = panel.getBoundingClientRect();
    const below = at.bottom + 6 + own.height <= window.innerHeight;
    const top = Math.max(8, Math.min(below ? at.bottom + 6 : at.top - 6 - own.height, window.innerHeight - own.height - 8));
    const left = Math.min(Math.max(8, at.left + at.width / 2 - own.width / 2), window.innerWidth - own.width - 8);
    panel.style.top = `${top}px`;
    panel.style.left = `${left}px`;
  }

  function show(button, keep = false) {
    clearTimeout(timer);
    if (shown !== button) {
      hide();
      shown = button;
      body.replaceChildren(document.getElementById(button.dataset.detail).content.cloneNode(true));
      panel.hidden = false;
      panel.scrollTop = 0;
      button.setAttribute("aria-expanded", "true");
      button.setAttribute("aria-describedby", "detail");
    }
    pinned = keep;
    place();
  }

  function hide() {
    clearTimeout(timer);
    if (shown) {
      shown.setAttribute("aria-expanded", "false");
      shown.removeAttribute("aria-describedby");
    }
    shown = null;
    pinned = false;
    panel.hidden = true;
  }

  function later(action, wait) {
    clearTimeout(timer);
    timer = setTimeout(action, wait);
  }

  const valueAt = event => (event.target instanceof Element ? event.target.closest(".value") : null);
  document.addEventListener("pointerover", event => {
    if (event.pointerType === "touch") return;
    const button = valueAt(event);
    if (button && !pinned) later(() => show(button), 90);
    else if (panel.contains(event.target)) clearTimeout(timer); // one may go into the panel, to read on or to copy
    else if (!pinned && shown && shown !== document.activeElement) later(hide, 250);
  });
  document.addEventListener("focusin", event => {
    const button = valueAt(event);
    if (button && button.matches(":focus-visible") && !pinned) show(button);
  });
  document.addEventListener("focusout", event => {
    const next = event.relatedTarget;
    if (shown && !pinned && !(next instanceof Element && (panel.contains(next) || next.closest(".value")))) hide();
  });
  document.addEventListener("click", event => {
    const button = valueAt(event);
    if (button) {
      const again = pinned && shown === button;
      if (again) {
        hide();
      } else {
        show(button, true);
        if (event.detail === 0) panel.focus(); // from the keyboard: let the panel be scrolled
      }
    } else if (event.target instanceof Element && event.target.closest(".sort")) {
      sort(event.target.closest(".sort"));
    } else if (event.target instanceof Element && event.target.closest(".close")) {
      close();
    } else if (pinned && !panel.contains(event.target)) {
      hide();
    }
  });
  function close() {
    const back = shown;
    const inside = panel.contains(document.activeElement);
    hide();
    if (back && inside) back.focus();
    if (inside) hide(); // focus would open it again
  }

  // --- the arrow keys: one stop of the Tab key for each table ---------------------------------------------------------
  for (const table of tables) {
    table.querySelectorAll(".value").forEach((button, at) => {
      button.tabIndex = at ? -1 : 0;
      button.setAttribute("aria-expanded", "false");
    });
  }
  const steps = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
  document.addEventListener("keydown", event => {
    if (event.key === "Escape" && shown) {
      close();
      return;
    }
    const button = valueAt(event);
    if (!button || !(event.key in steps)) return;
    event.preventDefault();
    const table = button.closest("table");
    const rows = [...table.tBodies].flatMap(rowsOf).map(row => [...row.querySelectorAll("td")].map(cell => cell.querySelector(".value")));
    const [down, across] = steps[event.key];
    let y = rows.findIndex(row => row.includes(button));
    let x = rows[y].indexOf(button);
    do {
      y += down;
      x += across;
    } while (rows[y] && x >= 0 && x < rows[y].length && !rows[y][x]); // cells without a number are passed over
    const next = rows[y] && rows[y][x];
    if (!next) return;
    table.querySelectorAll(".value[tabindex='0']").forEach(one => { one.tabIndex = -1; });
    next.tabIndex = 0;
    next.focus();
  });
  window.addEventListener("resize", () => { if (shown) place(); });
  document.addEventListener("scroll", event => { if (shown && !panel.contains(event.target)) place(); }, true);
})();
