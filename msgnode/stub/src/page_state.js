/**
 * What a page leaves for itself when it is reloaded: its token, its counts and what is not acknowledged.
 *
 * It is written when the page goes and taken out when it comes, so that a copy of the tab has nothing.
 */

/** Let `session` have the state that this tab left, and leave its own when the page goes. */
export function survivePages(world, key, session) {
  const { addEventListener } = world;
  const found = take(world, key);
  if (found) session.state = found;
  addEventListener?.('pagehide', () => {
    const { state } = session;
    if (state) tolerant(() => world.sessionStorage.setItem(key, JSON.stringify(state)));
  });
  // A page that the browser had only put aside goes on by itself.
  addEventListener?.('pageshow', () => take(world, key));
}

function take(world, key) {
  return tolerant(() => {
    const found = world.sessionStorage.getItem(key);
    world.sessionStorage.removeItem(key);
    return JSON.parse(found);
  });
}

/** Sandboxes and workers may have no storage, and it may be full; then the session is opened anew. */
function tolerant(act) {
  try {
    return act();
  } catch {
    return null;
  }
}
