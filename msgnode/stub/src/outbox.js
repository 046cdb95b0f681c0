/**
 * What the node has not acknowledged, numbered from 1 in each epoch, and within bounds.
 */
export class Outbox {
  /**
   * `most`: characters that may wait.  `refuse(data, code, why)` is called for each message that is given up.
   */
  constructor(most, refuse) {
    this._most = most;
    this._refuse = refuse;
    this.acknowledged = 0; // those below have the next numbers
    this.total = 0; // messages ever added
    this.restore([]);
  }

  /** Entries are JSON, and the time after which it is worth nothing, or 0. */
  restore(entries) {
    this.entries = entries;
    this._size = entries.reduce((size, [data]) => size + data.length, 0);
  }

  hasRoom(data) {
    return this._size + data.length <= this._most;
  }

  /** Keep a message; its number. */
  add(data, until) {
    this.entries.push([data, until]);
    this._size += data.length;
    this.total++;
    return this.acknowledged + this.entries.length;
  }

  /** Put messages before all others, in a new epoch. */
  prepend(some) {
    this.total += some.length;
    this.restore([...some.map((data) => [data, 0]), ...this.entries]);
  }

  each(act) {
    this.entries.forEach(([data], index) => act(data, this.acknowledged + index + 1));
  }

  /** The node has everything up to this number. */
  forget(number) {
    const gone = this.entries.splice(0, Math.max(0, number - this.acknowledged));
    gone.forEach(([data]) => (this._size -= data.length));
    this.acknowledged = number;
  }

  dropFirst(code, why) {
    const [first] = this.entries;
    this._drop((entry) => entry === first, code, why);
  }

  dropLongest(code, why) {
    const longest = Math.max(...this.entries.map(([data]) => data.length));
    const found = this.entries.find(([data]) => data.length === longest);
    this._drop((entry) => entry === found, code, why);
  }

  dropStale(now, code, why) {
    this._drop(([, until]) => until && until < now, code, why);
  }

  dropAll(code, why) {
    this._drop(() => true, code, why);
  }

  /** Give up messages that the node has not got; the others move up. */
  _drop(some, code, why) {
    const given = this.entries.filter(some);
    this.restore(this.entries.filter((entry) => !some(entry)));
    given.forEach(([data]) => this._refuse(data, code, why));
  }
}
