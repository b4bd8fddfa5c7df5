"""Every diagnostic id with its title, explanation and remedy; read by ``inlay errors``.

One file per area, found by its name: the area of ``type.rank-mismatch`` is ``type`` and its file
is ``type_.py`` (a trailing underscore keeps names off keywords and builtins). Each file holds one
tuple ``ENTRIES`` of `entry.Entry`. To add an id, add a record there. Read `table` for look-up.
"""
