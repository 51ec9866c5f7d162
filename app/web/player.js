// Playing rounds, or the steps of a course, one after another.

const PLAY_EVERY = 900; // milliseconds a round stays

export class Player {
  /** guide(): where it is: {atEnd, home(), step(by)}; may(): whether there is something to play;
   *  changed(on): it plays, or does no more. stays(): milliseconds until the next step. */
  constructor({ guide, may, changed, stays = () => PLAY_EVERY }) {
    Object.assign(this, { guide, may, changed, stays });
    this.timer = null;
  }

  toggle() {
    if (this.timer) return this.pause();
    if (!this.may()) return;
    this.guide().follow = false;
    if (this.guide().atEnd) this.guide().home();
    this._wait();
    this.changed(true);
  }

  _wait() {
    this.timer = setTimeout(() => {
      if (this.guide().atEnd) return this.pause();
      this.guide().step(1);
      if (this.timer) this._wait(); // the step may have ended the play
    }, this.stays());
  }

  pause() {
    clearTimeout(this.timer);
    this.timer = null;
    this.changed(false);
  }
}
