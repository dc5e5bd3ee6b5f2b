"""Objects and errors that hostile user code returns and raises, by name. Workspaces get a copy of this module.

No linter improves them: they are as strange as they look.
"""

# ruff: noqa
# mypy: ignore-errors

import array, fractions, decimal, functools, sys, types, asyncio
from decimal import Decimal
from fractions import Fraction


class HostileStr:
    def __str__(self):
        raise RuntimeError("str")

    def __repr__(self):
        raise RuntimeError("repr")


class ExitRepr:
    def __repr__(self):
        raise SystemExit(3)

    __str__ = __repr__


class NonStrRepr:
    def __repr__(self):
        return 7


class BigRepr:
    def __repr__(self):
        return "x" * 20_000_000


class CtrlRepr:
    def __repr__(self):
        return "\x1b[31m\ud800\x00\x1b]0;evil\x07"


class HostileClass:
    @property
    def __class__(self):
        raise RuntimeError("class")


class LyingClass:
    __class__ = float


class LyingClass2:
    __class__ = float

    def __float__(self):
        return 1.0


class HostileFloat(float):
    def __float__(self):
        raise KeyError("float")

    def __repr__(self):
        raise RuntimeError

    __str__ = __repr__

    def __eq__(self, o):
        raise RuntimeError

    def __lt__(self, o):
        raise RuntimeError

    __gt__ = __le__ = __ge__ = __lt__
    __hash__ = None

    def __bool__(self):
        raise RuntimeError

    def __format__(self, s):
        raise RuntimeError

    def __reduce__(self):
        raise RuntimeError

    def __round__(self, n=None):
        raise RuntimeError


class StrFloat(float):
    def __float__(self):
        return "1.0"


class FloatOfFloat(float):
    def __float__(self):
        return HostileFloat(1.0)


class HostileInt(int):
    def __float__(self):
        raise KeyError("int")

    def __index__(self):
        raise KeyError

    def __repr__(self):
        raise RuntimeError

    def __eq__(self, o):
        raise RuntimeError

    __hash__ = None


class BoolLike:
    def __bool__(self):
        raise RuntimeError

    def __float__(self):
        return 1.0


class Zero:  # numpy-like
    shape = ()

    def item(self):
        raise SystemExit("item")


class Zero2:
    shape = ()

    def item(self):
        return self

    def __repr__(self):
        raise KeyboardInterrupt


class ShapeRaises:
    @property
    def shape(self):
        raise KeyboardInterrupt("shape")


class Loop:
    shape = ()

    def item(self):
        return [1, 2]


class Getattr:
    def __getattr__(self, name):
        raise ValueError(name)


class HangingRepr:
    def __repr__(self):
        import sitecustomize

        sitecustomize.hang()


class Meta(type):
    def __instancecheck__(self, o):
        raise RuntimeError

    @property
    def __name__(self):
        raise RuntimeError("name")


class WithMeta(metaclass=Meta):
    pass


class MetaName(type):
    @property
    def __name__(self):
        return 5


class WithMetaName(metaclass=MetaName):
    pass


cyc = []
cyc.append(cyc)
deep = []
for _ in range(100_000):
    deep = [deep]

VALUES = {
    "none": None,
    "str": "1.0",
    "list": [1.0],
    "cycle": cyc,
    "deep": deep,
    "dict": {"a": 1},
    "bytes": b"1",
    "complex": 1j,
    "array": array.array("d", [1.0]),
    "snan": Decimal("sNaN"),
    "decimal": Decimal("1"),
    "fraction": Fraction(1, 1),
    "hugefraction": Fraction(10**400, 1),
    "true": True,
    "huge": 10**400,
    "hugeneg": -(10**400),
    "nan": float("nan"),
    "inf": float("inf"),
    "object": object(),
    "function": print,
    "generator": (i for i in [1]),
    "class": int,
    "ellipsis": ...,
    "type": type,
    "hostilestr": HostileStr(),
    "exitrepr": ExitRepr(),
    "nonstrrepr": NonStrRepr(),
    "bigrepr": BigRepr(),
    "ctrlrepr": CtrlRepr(),
    "hostileclass": HostileClass(),
    "lyingclass": LyingClass(),
    "lyingclass2": LyingClass2(),
    "hostilefloat": HostileFloat(1.0),
    "strfloat": StrFloat(1.0),
    "floatoffloat": FloatOfFloat(1.0),
    "hostileint": HostileInt(1),
    "boollike": BoolLike(),
    "zero": Zero(),
    "zero2": Zero2(),
    "shaperaises": ShapeRaises(),
    "loop": Loop(),
    "getattr": Getattr(),
    "withmeta": WithMeta(),
    "withmetaname": WithMetaName(),
    "hangingrepr": HangingRepr(),
    "bigstr": "x" * 2_000_000,
    "ctrlstr": "\x1b]0;x\x07\ud800",
    "bigint": 10**5000,
}


class StrRaises(Exception):
    def __str__(self):
        raise RuntimeError

    __repr__ = __str__


class StrExits(Exception):
    def __str__(self):
        raise SystemExit(4)


class StrGiga(Exception):
    def __str__(self):
        return "g" * 20_000_000


class StrInt(Exception):
    def __str__(self):
        return 5


class StrCtrl(Exception):
    def __str__(self):
        return "\x1b[2J\x1b]0;evil\x07\ud800\x00"


class StrHangs(Exception):
    def __str__(self):
        import sitecustomize

        sitecustomize.hang()


class MetaE(type):
    @property
    def __name__(self):
        raise RuntimeError


class OddName(Exception, metaclass=MetaE):
    pass


class OwnBase(BaseException):
    pass


class Causes(Exception):
    @property
    def __cause__(self):
        raise RuntimeError


class Ctx(Exception):
    @property
    def __traceback__(self):
        raise RuntimeError


class Grp(ExceptionGroup):
    @property
    def exceptions(self):
        raise RuntimeError


class HashE(Exception):
    def __hash__(self):
        raise RuntimeError

    def __eq__(self, o):
        raise RuntimeError

    def __bool__(self):
        raise RuntimeError


class DictE(Exception):
    def __getattribute__(self, n):
        raise RuntimeError(n)


def cyclic():
    a, b = ValueError("a"), ValueError("b")
    a.__cause__ = b
    b.__cause__ = a
    return a


def selfcause():
    a = ValueError("self")
    a.__context__ = ValueError("x")
    a.__context__.__context__ = a
    return a


def deepcause():
    e = ValueError("0")
    for i in range(20_000):
        n = ValueError(str(i))
        n.__cause__ = e
        e = n
    return e


def deepgroup():
    e = ValueError("0")
    for i in range(3000):
        e = ExceptionGroup("g", [e])
    return e


def widegroup():
    return ExceptionGroup("g", [ValueError(str(i)) for i in range(10_000)])


def notes():
    e = ValueError("n")
    e.__notes__ = [HostileStr(), 5, "x" * 10_000_000]
    return e


def syn():
    e = SyntaxError("bad")
    e.filename = 5
    e.lineno = "x"
    e.text = HostileStr()
    e.offset = -3
    return e


def oserr():
    return OSError(HostileStr(), HostileStr(), HostileStr())


def deeptb():
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(50_000)

    def f(n):
        if n == 0:
            raise ValueError("deep")
        f(n - 1)

    try:
        f(9000)
    except ValueError as e:
        return e
    finally:
        sys.setrecursionlimit(before)


def uni():
    return UnicodeDecodeError("u", b"x" * 10_000_000, 0, 1, "r")


def keyerr():
    return KeyError(HostileStr())


def nameerr():
    e = NameError("name 'x' is not defined")
    e.name = HostileStr()
    return e


ERRORS = {
    "strraises": StrRaises,
    "strexits": StrExits,
    "strgiga": StrGiga,
    "strint": StrInt,
    "strctrl": StrCtrl,
    "strhangs": StrHangs,
    "oddname": OddName,
    "ownbase": OwnBase,
    "exit": lambda: SystemExit(5),
    "exit0": lambda: SystemExit(0),
    "kbd": KeyboardInterrupt,
    "genexit": GeneratorExit,
    "cancelled": lambda: asyncio.CancelledError("mine"),
    "stopiter": StopIteration,
    "stopaiter": StopAsyncIteration,
    "cyclic": cyclic,
    "selfcause": selfcause,
    "deepcause": deepcause,
    "deepgroup": deepgroup,
    "widegroup": widegroup,
    "notes": notes,
    "syn": syn,
    "oserr": oserr,
    "deeptb": deeptb,
    "uni": uni,
    "keyerr": keyerr,
    "nameerr": nameerr,
    "causes": Causes,
    "ctx": Ctx,
    "grp": lambda: Grp("g", [ValueError()]),
    "basegroup": lambda: BaseExceptionGroup("g", [KeyboardInterrupt(), SystemExit(3)]),
    "hashe": HashE,
    "dicte": DictE,
    "memory": MemoryError,
    "recursion": RecursionError,
    "timeout": TimeoutError,
}


def act(name):
    """Return the value of that name, or raise the error."""
    if name in VALUES:
        return VALUES[name]
    raise ERRORS[name]()
