// Where we are in the steps of a text, and whether it moves on by itself.

const STAY = 750; // milliseconds a step stays when playing

export class Player {
  /** about: {reach() how many steps there are, busy() whether more may come}; onChange(moved). */
  constructor(about, onChange) {
    Object.assign(this, { about, onChange, place: 0, follow: false, timer: null });
  }

  get playing() {
    return this.timer !== null;
  }

  get last() {
    return Math.max(0, this.about.reach() - 1);
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

  step(by) {
    this.pause();
    this.go(this.place + by);
  }

  live() {
    this.pause();
    this.follow = true;
    this._to(this.last);
  }

  toggle() {
    if (this.playing) return this.pause();
    if (!this.about.reach()) return;
    if (this.place >= this.last) this.place = -1;
    this.follow = false;
    this.timer = 0;
    this._on();
  }

  _on() {
    if (this.place >= this.last && !this.about.busy()) return this.pause();
    this._to(this.place + 1);
    this.timer = setTimeout(() => this._on(), STAY);
  }

  pause() {
    clearTimeout(this.timer);
    this.timer = null;
    this.onChange(false);
  }
}
