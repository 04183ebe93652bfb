"""The process: who starts, watches and ends players, and answers for them.

In here: ``assembly`` (wires a stream's parts), ``supervisor`` (threads, restarts, stops) with ``hosted``, ``daemon`` (a
folder of workflows) with ``state_folder`` and ``service``, ``control`` and ``control_client`` (HTTP), and what is told:
``status``, ``waits``, ``showing``, ``metrics``. Nothing in here knows rows or how conflicts are resolved.
"""
