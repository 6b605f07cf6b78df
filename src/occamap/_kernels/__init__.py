"""Numba kernels: named, module-level, cached, on plain arrays. The only room that imports numba.

Kernels run without the GIL and on one thread; :mod:`occamap._workers` hands them blocks of rows.
So results do not depend on the number of threads, a fitted map may be shared by threads, and
processes may fork.
"""
