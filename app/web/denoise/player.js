// Where we are in the steps of a text, and whether it moves on by itself.

import { Player } from "../player.js";

export class StepsPlayer extends Player {
  /** about: {reach() how many steps there are, busy() whether more may come}; onChange(moved). */
  constructor(about, onChange) {
    const may = () => about.reach() > 0;
    super({ guide: () => this, may, changed: () => onChange(false) });
    Object.assign(this, { about, onChange, place: 0, follow: false });
  }

  get playing() {
    return this.timer !== null;
  }

  get last() {
    return Math.max(0, this.about.reach() - 1);
  }

  get atEnd() {
    return this.place >= this.last && !this.about.busy();
  }

  /** Back to the start, and along with what comes. */
  restart() {
    this.pause();
    Object.assign(this, { place: 0, follow: true });
  }

  go(place) {
    if (!this.about.reach()) return;
    this.follow = false;
    this._to(place);
  }

  _to(place) {
    this.place = Math.max(0, Math.min(this.last, place));
    this.onChange(true);
  }

  home() {
    this.go(0);
  }

  step(by) {
    this.go(this.place + by);
  }

  /** Somebody steps by hand. */
  walk(by) {
    this.pause();
    this.step(by);
  }

  live() {
    this.pause();
    this.follow = true;
    this._to(this.last);
  }
}
