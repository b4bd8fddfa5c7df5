"""Every diagnostic id with its title, explanation and remedy; read by ``inlay errors``.

One file of TOML per area, found by its name: ``type.rank-mismatch`` is the table ``rank-mismatch`` of
``type.toml``. To add an id, add a table there. `entry` says what is in it, `table` looks it up.
"""
