"use strict";
(() => {
  // One task's charts at a time; without JavaScript all of them are shown.
  const tasks = [...document.querySelectorAll(".task")];
  const choose = document.getElementById("choose");
  const small = [...document.querySelectorAll(".grid figure")];
  if (choose && tasks.length) {
    const select = choose.querySelector("select");
    const show = (number) => {
      select.value = number;
      tasks.forEach((task) => { task.hidden = task.id !== "task-" + number; });
      small.forEach((figure) => figure.classList.toggle("chosen", figure.dataset.task === String(number)));
    };
    select.addEventListener("change", () => show(select.value));
    small.forEach((figure) => {
      figure.tabIndex = 0;
      const pick = () => { show(figure.dataset.task); choose.scrollIntoView({ behavior: "smooth", block: "nearest" }); };
      figure.addEventListener("click", pick);
      figure.addEventListener("keydown", (event) => { if (event.key === "Enter") pick(); });
    });
    choose.hidden = false;
    show("0");
  }
  // Tables sort by the number or text in data-value; what is unknown comes last either way.
  const table = document.getElementById("tasks");
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") !== "descending";
      [...head.parentNode.cells].forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const value = (row) => row.cells[column].dataset.value;
      const rows = [...table.tBodies[0].rows].sort((a, b) => {
        const [x, y] = [value(a), value(b)];
        if (x === "" || y === "") return (x === "") - (y === "");
        const order = column === 0 ? x.localeCompare(y) : Number(x) - Number(y);
        return down ? -order : order;
      });
      table.tBodies[0].append(...rows);
    });
  });
})();
