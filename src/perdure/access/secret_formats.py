"""The formats of keys that a prefix or a shape gives away, as data for `access.redact`.

Each format: its kind, the fixed letters of which a key holds at least one, and its expression. The letters are looked
for first, at C speed. Written from what is known of the providers' formats. Left out on purpose: hashes of passwords
(htpasswd), ids of keys, publishable keys, and keys that are bare hex without a name (they look like a hash).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from perdure.regex import lazy_re

_WEB = "[A-Za-z0-9_-]"
_BASE62 = "[A-Za-z0-9]"
_HEX = "[0-9a-f]"
_END = "(?![A-Za-z0-9])"

PREFIXED_FORMATS: tuple[tuple[str, str, str], ...] = (
    ("perdure", "pdr-", rf"pdr-{_WEB}{{40,}}+"),  # the credential of a machine (sharing/machines.py)
    ("anthropic", "sk-ant-", rf"sk-ant-{_WEB}{{20,}}+"),
    ("openai", "sk-", rf"sk-(?:(?:proj|svcacct|admin|None|or-v1)-{_WEB}{{20,}}+|{_BASE62}{{32,}}+)"),
    ("stripe", "k_live_ k_test_ whsec_", rf"(?:[sr]k_(?:live|test)|whsec)_{_BASE62}{{16,}}+"),
    ("elevenlabs", "sk_", rf"sk_{_HEX}{{48}}{_END}"),
    ("razorpay", "rzp_", rf"rzp_(?:live|test)_{_BASE62}{{14,}}+"),
    ("github", "ghp_ gho_ ghu_ ghs_ ghr_ github_pat_", rf"(?:gh[pousr]_{_BASE62}{{30,}}+|github_pat_\w{{40,}}+)"),
    (
        "gitlab",
        "glpat- glptt- gldt- glrt- glcbt- glsoat- glagent- glft- glimt-",
        rf"gl(?:pat|ptt|dt|rt|cbt|soat|agent|ft|imt)-{_WEB}{{20,}}+",
    ),
    ("slack", "xoxa- xoxb- xoxe- xoxo- xoxp- xoxr- xoxs- xapp-", r"(?:xox[abeoprs]|xapp)-[A-Za-z0-9-]{15,}+"),
    (
        "slack-webhook",
        "hooks.slack",
        r"hooks\.slack\.com/(?:services|workflows|triggers)(?:/[A-Za-z0-9_+-]{6,}+){2,4}+",
    ),
    ("discord-webhook", "/webhooks/", rf"discord(?:app)?\.com/api/webhooks/\d{{15,20}}/{_WEB}{{40,}}+"),
    ("aws-key-id", "AKIA ASIA ABIA ACCA", rf"(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{{16}}{_END}"),
    ("alibaba", "LTAI", rf"LTAI{_BASE62}{{16,24}}{_END}"),
    ("tencent", "AKID", rf"AKID{_BASE62}{{32}}{_END}"),
    ("google", "AIza", rf"AIza{_WEB}{{35}}"),
    ("google", "ya29. GOCSPX- 1//0", rf"(?:ya29\.{_WEB}{{20,}}+|GOCSPX-{_WEB}{{20,}}+|1//0{_WEB}{{30,}}+)"),
    ("npm", "npm_", rf"npm_{_BASE62}{{36}}"),
    ("pypi", "pypi-", rf"pypi-{_WEB}{{40,}}+"),
    ("rubygems", "rubygems_", rf"rubygems_{_HEX}{{48}}{_END}"),
    ("crates", "cio", rf"cio{_BASE62}{{32}}{_END}"),
    ("clojars", "CLOJARS_", rf"CLOJARS_{_BASE62}{{60}}"),
    ("nuget", "oy2", rf"oy2[a-z0-9]{{43}}{_END}"),
    ("huggingface", "hf_ api_org_", rf"(?:hf|api_org)_{_BASE62}{{30,}}+"),
    ("sendgrid", "SG.", rf"SG\.{_WEB}{{16,32}}\.{_WEB}{{30,64}}"),
    ("twilio", "SK AC", rf"(?:SK|AC){_HEX}{{32}}{_END}"),
    ("jwt", "eyJ", rf"(?<![_-])eyJ{_WEB}{{8,}}+\.eyJ{_WEB}{{8,}}+(?:\.{_WEB}*+)?"),
    (
        "private-key",  # base64 of "-----BEGIN … PRIVATE KEY-----": client-key-data of a kubeconfig
        "LS0tLS1CRUdJTi",
        r"LS0tLS1CRUdJTiB(?:SU0Eg|QUklWQV|FQyBQ|PUEVOU|FTkNSW|EU0Eg)[A-Za-z0-9+/]{40,}+={0,2}+",
    ),
    ("digitalocean", "dop_v1_ doo_v1_ dor_v1_", rf"do[opr]_v1_{_HEX}{{64}}{_END}"),
    ("shopify", "shpat_ shpca_ shppa_ shpss_", rf"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{{32}}{_END}"),
    ("databricks", "dapi dose", rf"(?:dapi|dose){_HEX}{{32}}(?:-\d)?{_END}"),
    ("age", "AGE-SECRET-KEY-", r"AGE-SECRET-KEY-1[02-9AC-HJ-NP-Z]{58}"),
    ("mailgun", "key-", rf"(?:pubkey|key)-{_HEX}{{32}}{_END}"),
    ("mailchimp", "-us", rf"{_HEX}{{32}}-us\d{{1,2}}{_END}"),
    ("square", "sq0 EAAA", rf"(?:sq0[a-z]{{3}}-{_WEB}{{22,43}}+|EAAA[lE]{_WEB}{{59,}}+)"),
    ("facebook", "EAAB EAAC EAAG", rf"EAA[BCG]{_BASE62}{{60,}}+"),
    ("grafana", "glc_ glsa_", rf"(?:glc_[A-Za-z0-9+/]{{32,}}+={{0,2}}+|glsa_{_BASE62}{{32}}_[0-9A-Fa-f]{{8}})"),
    ("perplexity", "pplx-", rf"pplx-{_BASE62}{{40,}}+"),
    ("supabase", "sbp_ sb_secret_", rf"(?:sbp_{_HEX}{{40}}|sb_secret_{_WEB}{{24,}}+)"),
    ("planetscale", "pscale_", r"pscale_(?:tkn|pw|oauth)_[A-Za-z0-9_.=-]{32,}+"),
    ("linear", "lin_api_ lin_oauth_", rf"lin_(?:api|oauth)_{_BASE62}{{32,}}+"),
    ("notion", "ntn_", rf"ntn_{_BASE62}{{40,}}+"),
    ("notion", "secret_", rf"secret_{_BASE62}{{43}}{_END}"),
    ("figma", "figd_", rf"figd_{_WEB}{{36,}}+"),
    ("postman", "PMAK-", rf"PMAK-{_HEX}{{24}}-{_HEX}{{34}}"),
    ("newrelic", "NRAK- NRII- NRJS-", rf"NR(?:AK|II|JS)-{_WEB}{{19,}}+"),
    ("dynatrace", "dt0", r"dt0[a-z]\d\d\.[A-Z0-9]{24}\.[A-Z0-9]{64}"),
    ("sentry", "sntrys_ sntryu_", r"sntry[su]_[A-Za-z0-9+/=_-]{40,}+"),
    ("doppler", "dp.", rf"dp\.(?:pt|st|ct|sa|scim|audit)\.(?:[a-z0-9_-]{{2,35}}\.)?{_BASE62}{{40,44}}{_END}"),
    ("vault", "hvs. hvb. hvr.", rf"hv[sbr]\.{_WEB}{{24,}}+"),
    ("terraform", ".atlasv1.", rf"{_BASE62}{{14}}\.atlasv1\.{_WEB}{{60,}}+"),
    ("pulumi", "pul-", rf"pul-{_HEX}{{40}}{_END}"),
    ("fly", "fo1_ fm1r_ fm2_", r"(?:fo1_|fm1r_|fm2_)[A-Za-z0-9+/_=-]{40,}+"),
    ("heroku", "HRKU-", rf"HRKU-{_WEB}{{36,}}+"),
    ("groq", "gsk_", rf"gsk_{_BASE62}{{40,}}+"),
    ("replicate", "r8_", rf"r8_{_BASE62}{{37}}{_END}"),
    ("xai", "xai-", rf"xai-{_BASE62}{{60,}}+"),
    ("together", "tgp_v1_", rf"tgp_v1_{_WEB}{{40,}}+"),
    ("tavily", "tvly-", rf"tvly-{_WEB}{{28,}}+"),
    ("firecrawl", "fc-", rf"fc-{_HEX}{{32}}{_END}"),
    ("nvidia", "nvapi-", rf"nvapi-{_WEB}{{60,}}+"),
    ("fireworks", "fw_", rf"fw_{_BASE62}{{22,}}+"),
    ("cerebras", "csk-", rf"csk-{_BASE62}{{40,}}+"),
    ("langsmith", "lsv2_", rf"lsv2_(?:pt|sk)_{_HEX}{{32}}_{_HEX}{{10}}"),
    ("langfuse", "k-lf-", rf"[sp]k-lf-{_HEX}{{8}}(?:-{_HEX}{{4}}){{3}}-{_HEX}{{12}}"),
    ("resend", "re_", rf"re_{_BASE62}{{8}}_{_BASE62}{{24}}{_END}"),
    ("brevo", "xkeysib- xsmtpsib-", rf"x(?:key|smtp)sib-{_HEX}{{64}}-{_BASE62}{{16}}"),
    ("airtable", "pat", rf"pat{_BASE62}{{14}}\.{_HEX}{{64}}"),
    ("atlassian", "ATATT3 ATCTT3 ATBB", r"(?:AT[AC]TT3[A-Za-z0-9_=-]{60,}+|ATBB[A-Za-z0-9]{28,}+)"),
    ("docker", "dckr_pat_ dckr_oat_", rf"dckr_[po]at_{_WEB}{{27,}}+"),
    ("easypost", "EZAK EZTK", rf"EZ[AT]K{_BASE62}{{54}}"),
    ("flutterwave", "FLWSECK", r"FLWSECK(?:_TEST)?-[A-Za-z0-9]{32}-X"),
    ("plaid", "access-", rf"access-(?:sandbox|development|production)-{_HEX}{{8}}(?:-{_HEX}{{4}}){{3}}-{_HEX}{{12}}"),
    ("shippo", "shippo_", rf"shippo_(?:live|test)_{_HEX}{{40}}"),
    ("readme", "rdme_", r"rdme_[a-z0-9]{70}"),
    ("prefect", "pnu_", r"pnu_[A-Za-z0-9]{36}"),
    ("typeform", "tfp_", r"tfp_[A-Za-z0-9_.=-]{40,}+"),
    ("adafruit", "aio_", rf"aio_{_BASE62}{{28}}{_END}"),
    ("artifactory", "AKC cmVmdGtuO", rf"(?:AKCp{_BASE62}{{60,}}+|cmVmdGtuO{_BASE62}{{50,}}+)"),
    ("openshift", "sha256~", rf"sha256~{_WEB}{{43}}"),
    ("sourcegraph", "sgp_", rf"sgp_(?:[a-zA-Z0-9]{{16}}_|local_)?{_HEX}{{40}}"),
    ("sonar", "squ_ sqp_ sqa_", rf"sq[upa]_{_HEX}{{40}}"),
    ("neon", "napi_", r"napi_[a-z0-9]{60,}+"),
    ("tailscale", "tskey-", r"tskey-(?:auth|api|client|webhook|scim)-[A-Za-z0-9]+-[A-Za-z0-9]{20,}+"),
    ("contentful", "CFPAT-", rf"CFPAT-{_WEB}{{43}}"),
    ("buildkite", "bkua_", rf"bkua_{_HEX}{{40}}"),
    ("circleci", "CCIPAT_ CCIPRJ_", rf"CCIP(?:AT|RJ)_{_BASE62}{{20,}}_{_HEX}{{40}}"),
    ("posthog", "phx_", rf"phx_{_WEB}{{40,}}+"),
    ("octopus", "API-", r"API-[A-Z0-9]{26}(?![A-Za-z0-9])"),
    ("onepassword", "ops_eyJ", rf"ops_eyJ{_WEB}{{100,}}+"),
    ("azure", "Q~", r"[A-Za-z0-9_~.]{3}\dQ~[A-Za-z0-9_~.-]{31,34}"),
    ("yandex", "AQVN y0_", rf"(?:AQVN{_WEB}{{35,}}+|y0_{_WEB}{{50,}}+)"),
    ("infracost", "ico-", rf"ico-{_BASE62}{{32}}{_END}"),
)
SHAPED_FORMATS: tuple[tuple[str, str], ...] = (  # without fixed letters
    ("telegram", rf"\d{{8,10}}:{_WEB}{{35}}(?!{_WEB})"),
    ("discord", rf"[MNO]{_WEB}{{23,27}}\.{_WEB}{{6}}\.{_WEB}{{27,40}}(?!{_WEB})"),
)


def _join_hints(hints: Sequence[str]) -> str:
    """Return an expression for any of the hints in which common beginnings stand once: a quarter of the time.

    >>> _join_hints(["ab", "ac"])
    'a(?:b|c)'
    """
    rests_by_letter: dict[str, list[str]] = {}
    for hint in hints:
        rests_by_letter.setdefault(hint[:1], []).append(hint[1:])
    if "" in rests_by_letter:  # the hint that ends here is found, whatever follows
        return ""
    branches = [re.escape(letter) + _join_hints(rests) for letter, rests in rests_by_letter.items()]
    return branches[0] if len(branches) == 1 else f"(?:{'|'.join(branches)})"


KEY_HINT = lazy_re(_join_hints([hint for _, hints, _ in PREFIXED_FORMATS for hint in hints.split()]))
