/**
 * Whether to come back after a connection ended, and when.
 */

const LONGEST = 30000; // milliseconds
const FIRST = 500;

/** Codes that would only come again; those of 4000 and more are the node's own. */
const FINAL = [1000, 1002, 1003, 1007];

/**
 * Milliseconds the node asks to wait, 0 if it does not say, null if coming back is useless.
 */
export function wait(code, reason) {
  const after = /retry_after=([\d.]+)/.exec(reason);
  if (after) return after[1] * 1000;
  return FINAL.includes(code) || code >= 4000 ? null : 0;
}

/**
 * Milliseconds until the next attempt: doubled each time, never less than was asked for, never quite the same.
 */
export function backOff(attempt, asked, random) {
  const own = Math.min(LONGEST, FIRST * 2 ** attempt);
  return own * (1 + random) / 2 + asked;
}
