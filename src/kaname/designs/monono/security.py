"""`SecurityManager` of MONONO 3.13: personal data and permissions, on `Privacy` and `Permit`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...core.notices import notice
from ...kernel.ports import Policy
from ...policies.budget.budget import Verdict
from ...policies.permit.policy import Permit, Roles
from ...policies.privacy.policy import Privacy
from ...policies.privacy.scan import Detector
from ...policies.privacy.values import sanitize_data


class SecurityManager:
    """Cleans data of personal data and keys, and checks permissions. Attach it with `Agent(…, policies=security.policies)`.

        security = SecurityManager([{"role": "clerk", "tool": "pay"}], roles={"ann": ["clerk"]}, kinds={"email": "mask"})

    Args:
        rules: Permission rules, as for `Permit`. Without rules, `check_permissions` refuses everything and runs are not
            restricted.
        roles: The roles of users, as for `Permit`.
        resources: The data that calls read, by tool, as for `Permit`.
        kinds: The treatment of each kind of personal data in runs, as for `Privacy` (default: pseudonyms, and keys are masked).
        patterns: Regular expressions for further kinds, by their name.
        detectors: Functions that find further data, such as `find_names`.

    Attributes: access_control: The `Permit`, or None without rules. policies: What an agent needs to enforce all of it.

    Raises:
        ConfigError: A rule, a kind or a pattern cannot be used.
    """

    def __init__(
        self,
        rules: Iterable[Any] | None = None,
        *,
        roles: Roles | None = None,
        resources: Mapping[str, str] | None = None,
        kinds: Mapping[str, Any] | None = None,
        patterns: Mapping[str, str] | None = None,
        detectors: Sequence[Detector] = (),
    ) -> None:
        self.access_control = None if rules is None else Permit(rules, roles=roles, resources=resources)
        self._patterns, self._detectors = dict(patterns or {}), (detectors,) if callable(detectors) else tuple(detectors)
        privacy = Privacy(kinds, patterns=patterns, detectors=self._detectors)
        self.policies: list[Policy] = [privacy] if self.access_control is None else [self.access_control, privacy]

    def sanitize_data(self, data: Any, pii_patterns: Mapping[str, str] | Sequence[str] | None = None) -> Any:
        """Return data with the personal data in it masked: `"a@b.example"` becomes `"[email]"`.

        Args:
            data: A text, or any JSON value. It is not changed.
            pii_patterns: What to look for: names of kinds, or regular expressions by their name. By default all kinds that
                kaname knows, and the patterns and detectors of this manager.

        Raises:
            ConfigError: A name or a pattern cannot be used.
        """
        if pii_patterns is not None:
            return sanitize_data(data, pii_patterns)
        cleaned = sanitize_data(data, self._patterns) if self._patterns else data
        return sanitize_data(cleaned, detectors=self._detectors)

    def check_permissions(
        self, user_identity: Any, action: str, resource_id: str, *, arguments: Mapping[str, Any] | None = None
    ) -> Verdict:
        """Say whether an action is permitted. The verdict is true or false, and has a `reason`.

        Args:
            user_identity: The user's id, or a mapping with some of `user`, `roles`, `agent` and `path`.
            action: "use" for a tool, "hand_over" for an agent, or an action on data such as "read".
            resource_id: The name of the tool or of the agent, or the id of the data.
            arguments: The arguments of the tool. Without them, a rule with conditions allows nothing.
        """
        if self.access_control is None:
            return Verdict(False, notice("security.no_rules", "not permitted: the SecurityManager has no rules"))
        return self.access_control.check_permissions(user_identity, action, resource_id, arguments=arguments)
