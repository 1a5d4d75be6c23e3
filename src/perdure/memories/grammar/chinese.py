"""What a statement in Chinese claims: by expressions, for nothing sets its words apart. Pure.

Every expression is anchored and its parts exclude punctuation, so that reading a clause is linear in its length.
"""

from __future__ import annotations

from perdure.memories.grammar import words
from perdure.regex import lazy_re

_HAN = lazy_re("[\u4e00-\u9fff]")
_CLAUSE = lazy_re(r"[，。；、！!;,：:\n]|\s{2,}")
_LEAD = lazy_re(
    r"(?:对了|顺便说一下|顺便提一下|另外|更正|注意|请记住|记住|记得|其实|以后|从现在起|从今以后|从今天起|从今天开始|"
    r"现在|目前|好的|今后|不过|但是|而且|"
    r"改主意了|说错了|我记错了|我说错了|你好|请|那么|所以)+"
)
_HOW = lazy_re(r"每天(?:早上|晚上|中午)?|每周|常常?(?=[喝吃用])|通常|一般|平时|经常")
_AGAIN = lazy_re(r"[又再](?=[换改搬回由用住在退监是去开做喝])|重新|现在|目前|已经|如今")
_ALSO = lazy_re(r"[也还](?=[喜爱用在喝吃])|同时")
_OPEN = lazy_re(r"如果|要是|假如|也许|可能|是否|能不能|要不要|该不该|万一|为什么|怎么|什么|会不会|是不是")
_S = r"(?P<s>[^，。]{1,40}?)"
_S0 = r"(?P<s>[^，。]{0,40}?)"
_V = r"(?P<v>[^，。]{1,30}?)了?$"
_TURN = r"(?:换|改|迁移|升级|升|切换|搬家|搬|跳槽|移|调整|调|推迟|提前|延期|涨|降|变|退|提高|增加|减少|缩短|延长)"
_RULES = tuple(
    (relation, lazy_re(expression))
    for relation, expression in (
        ("not", r"(?:而?不是|并非)(?P<v>[^，。]{1,30})$"),
        ("name", r"(?:我叫|我的名字(?:叫|是)|请叫我|叫我|我改名叫)(?P<v>[^，。]{1,20})$"),
        ("rename", rf"(?:我们)?把?{_S}(?:改名|更名|重命名)(?:叫|为|成)?了?{_V}"),
        ("switch", rf"(?:[^，。把]{{0,8}})把{_S}从(?P<o>[^，。]{{1,20}}?){_TURN}(?:成|到|为|至|去|回)?了?{_V}"),
        ("does", rf"(?P<s>我)(?:回去)?(?:转行)?(?:改做|做|当){_V}"),
        ("switch", rf"{_S0}从(?P<o>[^，。]{{1,20}}?){_TURN}(?:成|到|为|至|去|回)?了?{_V}"),
        ("left", rf"{_S}(?:离开|辞去)了?(?P<o>[^，。]{{1,20}}?)(?:去|加入|到)了?{_V}"),
        ("handed", rf"(?P<o>[^，。]{{1,10}}?)把{_S}(?:交给|移交给|转给)了?{_V}"),
        ("change", rf"(?:[^，。把]{{0,8}})把{_S}(?:{_TURN}|设|定|搬)(?:成|到|为|至|在|回)了?{_V}"),
        ("employer", rf"{_S}换到(?P<v>[^，。]{{1,14}}?)(?:工作|上班)了?$"),
        ("home", rf"(?P<s>[^，。]{{1,8}}?)家在{_V}"),
        ("employer", rf"{_S}(?:跳槽|入职|加入|跳)(?:到|去)?了?{_V}"),
        (
            "quit",
            r"(?P<s>我们?)(?:不再|再也不|不)(?P<w>用|使用|喝|吃|抽|喜欢喝|喜欢|在|住在|住|"
            r"做)(?P<v>[^，。]{1,20}?)(?:上班|工作)?了?$",
        ),
        ("quit", r"(?P<s>我们?)(?P<w>戒)(?P<v>[^，。]{1,10}?)了$"),
        ("change", rf"{_S0}{_TURN}(?:成|到|为|至|回|去|做|用)了?{_V}"),
        ("change", rf"{_S}(?:回到|回去做|退回)了?{_V}"),
        ("employer", rf"{_S}(?:就职于|任职于)了?{_V}"),
        ("home", r"(?P<s>[^，。]{1,10}?)在(?P<v>[^，。]{1,14}?)(?:生活|居住|定居)了?$"),
        ("employer", r"(?P<s>[^，。]{1,10}?)在(?P<v>[^，。]{1,20}?)(?:工作|上班|任职)了?$"),
        ("home", rf"(?P<s>[^，。]{{0,10}}?)住在?{_V}"),
        ("allergies", r"(?P<s>[^，。]{1,8}?)对(?P<v>[^，。]{1,14}?)过敏$"),
        (
            "prefers",
            r"(?P<s>我们?)(?:更|比较|还是)?(?:偏好|更喜欢|宁愿用|"
            r"习惯用)(?P<v>[^，。]{1,24}?)(?:而不是(?P<o>[^，。]{1,20}))?$",
        ),
        ("dislikes", r"(?P<s>[^，。]{1,6}?)(?:很|最)?(?:讨厌|不喜欢|不爱)(?:喝|吃)?(?P<v>[^，。]{1,14}?)$"),
        ("likes", r"(?P<s>[^，。]{1,6}?)(?:很|最|非常|只|都)?(?:喜欢|爱|喝|吃)(?:喝|吃)?(?P<v>[^，。]{1,14}?)了?$"),
        ("port", rf"{_S}(?:监听|运行在|跑在|使用|用|在)(?:在)?(?:端口)? ?(?P<v>\d{{2,5}}) ?号?(?:端口)?(?:上)?$"),
        ("decided", r"我们(?:决定|最后决定|打算)(?:使用|采用|用|改用|选用|选)(?P<v>[^，。]{1,20}?)$"),
        ("coding", r"(?P<s>我们?)用(?P<v>[^，。]{1,20}?)(?:写代码|编程|编辑代码)$"),
        ("owner", rf"{_S}由(?P<v>[^，。]{{1,10}}?)(?:来)?(?:负责|管理|维护|接手)了?$"),
        ("owner", rf"{_S}归(?P<v>[^，。]{{1,10}}?)(?:管|负责)了?$"),
        ("owner2", r"负责(?P<s>[^，。]{1,40}?)的(?:人)?是(?P<v>[^，。]{1,10})$"),
        ("owner2", r"(?P<v>[^，。的]{1,10}?)(?:负责|接手了?|接管了?|管理|维护)(?P<s>[^，。]{1,40}?)了?$"),
        ("uses", rf"{_S0}(?:都|一直)?(?:改用|用的是|使用|采用|用){_V}"),
        ("set", rf"{_S}(?:定在|设为|设成|设置为|定为|安排在){_V}"),
        ("called", rf"{_S}叫(?:做)?{_V}"),
        ("when", rf"{_S}(?:在|是)(?P<v>(?:每?(?:星期|周)[一二三四五六日天]|\d+月)[^，。]{{0,12}})$"),
        ("is", rf"{_S0}(?:是|为){_V}"),
    )
)
_ATTRIBUTE_SUFFIXES = (
    "截止日期 截止时间 超时时间 端口号 用户名 编辑器 浏览器 数据库 操作系统 编程语言 包管理器 消息队列 电话号码 "
    "负责人 供应商 会议室 名字 姓名 职业 工作 "
    "职位 生日 年龄 地址 住址 邮箱 电话 端口 版本 密码 期限 缓存 主题 时区 域名 主机 区域 分支 预算 价格 工资 房租 "
    "租金 超时 间隔 大小 地点 状态 "
    "格式 模型 颜色 语言 医生 牙医 经理 老板 妻子 老婆 丈夫 女朋友 男朋友 学校 大学 银行 爱好 车 时间 日期 城市 公司 "
    "框架"
).split()
_PLACE = lazy_re("[\u4e00-\u9fff]{2,6}$")
_PERSON = lazy_re("[\u4e00-\u9fff]{2,4}$")


def is_chinese(text: str) -> bool:
    """Return whether a text is to be read as Chinese: an eighth of its letters are, for its names may be Latin."""
    if text.isascii():
        return False
    n_han = len(_HAN.findall(text))
    return n_han * 8 > sum(c.isalpha() for c in text) and n_han > 1


def read(text: str) -> dict[str, object] | None:
    """Return the fields of the claim in the first clause that makes one, None where none does.

    >>> read("测试服务器的端口是8080。")["attribute"], read("我不喝咖啡了")["negated"]
    ('port', True)
    """
    found: list[dict[str, object]] = []
    for clause in _CLAUSE.split(text):
        clause = _LEAD.sub("", clause.strip(), count=1) if _LEAD.match(clause.strip()) else clause.strip()
        if not clause or len(clause) > 80 or _OPEN.search(clause) or clause.endswith(("吗", "呢", "？", "?")):
            continue
        made = _first(clause)
        if made and made["attribute"] == "not":
            found[-1:] = [{**f, "old_value": f["old_value"] or made["value"]} for f in found[-1:]]
        elif made:
            found.append(_after(found, made))
    return max(found, key=lambda f: (f["attribute"] not in ("uses", "is", "value"), bool(f["changed"])), default=None)


def _first(clause: str) -> dict[str, object] | None:
    """Return the fields of the claim that the first fitting rule finds in a clause."""
    plain = _HOW.sub("", clause)
    bare = _ALSO.sub("", _AGAIN.sub("", plain)).strip()
    for relation, rule in _RULES:
        match = rule.match(bare)
        made = _made(relation, match.groupdict()) if match else None
        if made:
            made["changed"] = made["changed"] or bool(_AGAIN.search(plain))
            made["single"] = made["single"] and not _ALSO.search(plain)
            return made
    return None


def _after(found: list[dict[str, object]], made: dict[str, object]) -> dict[str, object]:
    """Return a claim with what the one before it ended as its old value: 我不用vim了，改用helix."""
    ended = found[-1] if found else None
    if not ended or not ended["negated"] or made["negated"] or ended["entity"] != made["entity"]:
        return made
    return {
        **made,
        "old_value": ended["value"],
        "attribute": ended["attribute"],
        "single": ended["single"],
        "changed": True,
    }


def _made(relation: str, said: dict[str, str | None]) -> dict[str, object] | None:
    """Return the fields of a claim."""
    value = (said.get("v") or "").strip(' 了"“”')
    if relation == "not":
        return {"attribute": "not", "value": value, "changed": False, "single": True}
    entity, attribute = _subject((said.get("s") or "").strip())
    changed = relation in ("switch", "change", "rename", "quit", "decided", "handed", "left")
    fields: dict[str, object] = {
        "entity": entity or "user",
        "attribute": attribute,
        "value": value,
        "negated": False,
        "changed": changed,
        "old_value": (said.get("o") or "").strip(),
        "single": True,
    }
    if not value:
        return None
    fields.update(_by_relation(relation, entity or "user", attribute, value, said))
    return fields if fields["attribute"] else None


_NAMED_VERSION = lazy_re(r"([A-Za-z][\w.+#-]*) v?\d{1,3}(?:\.\d+)*$")
_VERSION = lazy_re(r"v?\d+(?:\.\d+)+$")
_TRADE = lazy_re(r".*(?:师|员|家|经理|开发|翻译|医生|老师|护士|律师|总监|记者|者|长|学生)$")
_FIXED = {
    "home": "home",
    "port": "port",
    "owner": "owner",
    "owner2": "owner",
    "handed": "owner",
    "employer": "employer",
}


def _by_relation(
    relation: str, entity: str, attribute: str, value: str, said: dict[str, str | None]
) -> dict[str, object]:
    """Return what the relation decides: the attribute, whether several values are true at once, the polarity."""
    kind = words.category(_spaced(value)) or _typed(value)
    named = _NAMED_VERSION.match(value)
    if named and relation in ("uses", "is", "change", "decided"):
        return {"entity": words.slug([words.noun(named[1])]), "attribute": "version"}
    if relation in _FIXED or relation == "name":
        return {"attribute": _FIXED.get(relation, relation), "entity": "user" if relation == "name" else entity}
    if relation in ("called", "when"):
        return {"attribute": "name" if relation == "called" else attribute or "time"}
    if relation == "rename":
        return {"attribute": "name", "old_value": said.get("s") or ""}
    if relation in ("likes", "dislikes", "allergies"):
        return {
            "attribute": "likes" if relation != "allergies" else relation,
            "single": False,
            "negated": relation == "dislikes",
        }
    if relation == "quit":
        return _quit(entity, said.get("w") or "", kind)
    if relation in ("does", "coding") or (
        relation == "is" and entity == "user" and not attribute and _TRADE.match(value)
    ):
        return {"attribute": "preferences/editor" if relation == "coding" else "job"}
    if relation in ("uses", "prefers", "decided"):
        return _used(relation, entity, attribute or kind, said)
    return _changed(relation, entity, attribute or ("version" if _VERSION.match(value) else ""), kind, value)


def _used(relation: str, entity: str, attribute: str, said: dict[str, str | None]) -> dict[str, object]:
    """Return what a statement about use decides; who is not named is the project."""
    entity = "project" if relation == "decided" or (not said.get("s") and entity == "user") else entity
    name = attribute or ("likes" if relation == "prefers" else "uses")
    single = bool(attribute) and not (entity in ("user", "project") and attribute in words.SEVERAL)
    if entity == "user" and words.is_shared(attribute):
        entity = "project"
    return {"entity": entity, "attribute": _choice(entity, name), "single": single}


def _quit(entity: str, verb: str, kind: str) -> dict[str, object]:
    if verb in ("用", "使用"):
        return {"attribute": _choice(entity, kind or "uses"), "single": bool(kind), "negated": True}
    if verb == "做":
        return {"attribute": "job", "negated": True}
    if verb in ("住在", "住", "在"):
        return {"attribute": "home" if verb != "在" else "employer", "negated": True}
    return {"attribute": "likes", "single": False, "negated": True}


def _changed(relation: str, entity: str, attribute: str, kind: str, value: str) -> dict[str, object]:
    if attribute:
        return {"attribute": _choice(entity, attribute)}
    if kind:
        return {"attribute": _choice(entity, kind)}
    if relation == "is":
        return {"attribute": "is", "single": False}
    if relation in ("switch", "change") and _PLACE.match(value) and (entity == "user" or _PERSON.match(entity)):
        return {"attribute": "home"}
    return {"attribute": "value"}


def _choice(entity: str, attribute: str) -> str:
    return f"preferences/{attribute}" if entity == "user" and words.is_category(attribute) else attribute


def _typed(value: str) -> str:
    """Return the attribute that a value tells: a time, an amount of money."""
    if lazy_re(
        r"(?:星期|周)[一二三四五六日天]|\d+[点号月日]|[一二三四五六七八九十]+[点号月日]|下午|上午|明天|月底"
    ).search(value):
        return "time"
    return "price" if lazy_re(r"\d+(?:元|块|欧元|美元)").search(value) else ""


def _spaced(value: str) -> list[str]:
    """Return the words of a value: runs of Latin letters apart from Chinese."""
    return lazy_re(r"[A-Za-z][\w.+-]*|[\u4e00-\u9fff]+|\d+").findall(value)


def _subject(subject: str) -> tuple[str, str]:
    """Return (entity, attribute) of a subject such as 测试服务器的端口.

    >>> _subject("测试服务器的端口"), _subject("我的编辑器"), _subject("周会")
    (('测试-server', 'port'), ('user', 'editor'), ('周会', ''))
    """
    bare = subject.removeprefix("把").removesuffix("现在").removesuffix("已经")
    attribute = next((s for s in _ATTRIBUTE_SUFFIXES if bare.endswith(s)), "")
    head = bare[: len(bare) - len(attribute)].removesuffix("新").removesuffix("的")
    return _entity(head, has_attribute=bool(attribute)), words.attribute_of([attribute]) if attribute else ""


def _entity(head: str, *, has_attribute: bool) -> str:
    """Return who or what stands before an attribute; I and we by the names that every language shares."""
    if head in ("我", "我自己"):
        return "user"
    if head in ("我们", "咱们", "我们团队") or (not head and has_attribute):
        return "project"
    head = head.removeprefix("我们的").removeprefix("我的").removeprefix("我们").removeprefix("我").strip("的 ")
    for name, canonical in (("服务器", "server"), ("项目", "project"), ("会议", "meeting"), ("服务", "service")):
        if head.endswith(name) and len(head) > len(name):
            return f"{words.slug([head[: -len(name)]])}-{canonical}"
        if head == name:
            return canonical
    return words.slug(head.split() or [head])
