// Answers come in any order, and only the one that was asked for last may be shown.

export class Turns {
  /** Ask for something: whatever was asked for before is not wanted any more. Gives isWanted(),
   *  to be called when the answer is there. */
  take() {
    const before = this.now,
      isWanted = this._wait({});
    isWanted.giveBack = () => {
      if (isWanted()) this.now = before; // nothing came of it: what was asked for before is wanted
    };
    return isWanted;
  }

  /** Ask for something beside what is asked for already. */
  join() {
    return this._wait(this.now ?? {});
  }

  _wait(turn) {
    this.now = turn;
    return () => this.now === turn;
  }

  /** Nothing is wanted any more: its answer has come, or something else is on view. */
  end() {
    this.now = null;
  }

  /** Whether something is asked for. */
  get isTaken() {
    return !!this.now;
  }
}
