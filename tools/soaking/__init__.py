"""
The soak test behind `tools/soak`: load with faults, and a verdict from the clients' own records.

`report/command.py` reads the options and makes a run: it starts the node with
`peers/node_process.py`, behind the proxies of `peers/proxy.py`, and the clients
of `load/generator.py`, which speak by `load/transports.py`.
`scenarios/faults.py` then injects one fault after the other.  In the end
`report/figures.py` counts what the clients wrote down, and `verdict.py`
says which promises of docs/protocol.md were broken.

With `--federation`, `federation/` does the same with the nodes of several domains
(`peers/domain_node.py`), each link behind a proxy, and clients of `load/member.py`.

With `--cluster`, `cluster/` does the same with several nodes of one domain
(`peers/member_node.py`) on two nats-servers (`peers/nats_process.py`), behind a balancer.

The machine may be as slow as it likes: every wait ends by `progress.py`.
"""
