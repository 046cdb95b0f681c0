/**
 * The entry for runtimes that evaluate a source package and call `activate`.
 */

import Protostub from './protostub.js';

export default function activate(url, bus, config) {
  const instance = new Protostub();
  instance._start(url, bus, config);
  return { name: instance.name, instance };
}
