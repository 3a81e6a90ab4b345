// A pointer that rests on a point, a touch or the arrow keys show its text, and mark the same text in the other panels.
{
  const NEAR = 14; // pixels of the screen
  const figures = JSON.parse(document.getElementById("points").textContent);
  const tip = document.createElement("div");
  tip.className = "tip";
  tip.setAttribute("role", "status");
  tip.hidden = true;
  document.body.append(tip);
  const hide = [];
  for (const [number, { texts, groups, panels }] of Object.entries(figures)) {
    const places = [...document.querySelectorAll(`#figure-${number} .panel`)];
    const drawings = places.map((place) => place.querySelector("svg"));
    const marks = drawings.map((svg) => {
      const mark = document.createElementNS(svg.namespaceURI, "circle");
      mark.setAttribute("class", "here");
      mark.setAttribute("r", "5");
      svg.append(mark);
      return mark;
    });
    const byText = panels.map((points) => new Map(points.map((point, i) => [point[2], i])));
    const current = panels.map(() => null);
    const onScreen = (panel, [x, y]) => new DOMPoint(x, y).matrixTransform(drawings[panel].getScreenCTM());
    const clear = () => {
      tip.hidden = true;
      for (const mark of marks) mark.classList.remove("shown");
    };
    hide.push(clear);
    const show = (panel, i) => {
      const point = panels[panel][i];
      current[panel] = i;
      const group = document.createElement("strong");
      group.textContent = groups[point[3]];
      tip.replaceChildren(group, texts[point[2]]);
      tip.hidden = false;
      const at = onScreen(panel, point);
      const left = Math.min(at.x + 12, document.documentElement.clientWidth - tip.offsetWidth - 8);
      const below = at.y + 14 + tip.offsetHeight < document.documentElement.clientHeight;
      tip.style.left = `${Math.max(8, left) + scrollX}px`;
      tip.style.top = `${(below ? at.y + 14 : at.y - 14 - tip.offsetHeight) + scrollY}px`;
      marks.forEach((mark, other) => {
        const same = panels[other][byText[other].get(point[2])];
        mark.classList.toggle("shown", same !== undefined);
        if (same === undefined) return;
        mark.setAttribute("cx", same[0]);
        mark.setAttribute("cy", same[1]);
      });
    };
    const nearest = (panel, x, y, allowed = () => true) => {
      let best = -1, least = Infinity;
      panels[panel].forEach((point, i) => {
        const distance = (point[0] - x) ** 2 + (point[1] - y) ** 2;
        if (distance < least && allowed(point)) [best, least] = [i, distance];
      });
      return [best, Math.sqrt(least)];
    };
    const point = (panel, event) => {
      const matrix = drawings[panel].getScreenCTM();
      const { x, y } = new DOMPoint(event.clientX, event.clientY).matrixTransform(matrix.inverse());
      const [best, distance] = nearest(panel, x, y);
      if (best >= 0 && distance * matrix.a < NEAR) show(panel, best);
      else clear();
    };
    const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    places.forEach((place, panel) => {
      place.addEventListener("pointermove", (event) => point(panel, event));
      place.addEventListener("pointerdown", (event) => point(panel, event));
      place.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && clear());
      place.addEventListener("blur", clear);
      place.addEventListener("keydown", (event) => {
        if (!(event.key in step) || !panels[panel].length) return;
        event.preventDefault();
        const [dx, dy] = step[event.key];
        const from = panels[panel][current[panel] ?? 0];
        const ahead = (to) => {
          const along = (to[0] - from[0]) * dx + (to[1] - from[1]) * dy;
          return along > 0 && along >= Math.abs((to[0] - from[0]) * dy) + Math.abs((to[1] - from[1]) * dx);
        };
        const next = current[panel] === null ? 0 : nearest(panel, from[0], from[1], ahead)[0];
        if (next >= 0) show(panel, next);
      });
    });
  }
  document.addEventListener("keydown", (event) => event.key === "Escape" && hide.forEach((each) => each()));
}
