"""The application's error tree; ``migrator.exit_codes`` maps every tree to an exit code."""


class MigratorError(Exception):
    """Any failure of the application that a user can act on, told in one line."""


class ConfigError(MigratorError):
    """A config cannot be used; names the file, the key, the value and what is allowed."""


class ConfigSloError(ConfigError):
    """A config asks for an SLO that its model meets on no profile; names the smallest that would do."""


class GridError(MigratorError):
    """What to vary cannot be used; names the key, the value and what is allowed."""


class RunFolderError(MigratorError):
    """A run folder exists already, is missing, or cannot be written."""


class LogError(MigratorError):
    """A log cannot be read as one of ours."""


class InfeasibleError(MigratorError):
    """No plan exists; names the tenant and the rule."""
