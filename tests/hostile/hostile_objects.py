"""Objects and errors that hostile user code returns and raises, by name. Workspaces get a copy of this module.

No linter improves them: they are as strange as they look.
"""

# ruff: noqa
# mypy: ignore-errors

import sys, types, asyncio
from decimal import Decimal
from fractions import Fraction


def odd(base=object, **members):
    return type("Odd", (base,), members)


def raises(kind=RuntimeError, *given):
    def method(*_, **__):
        raise kind(*given)

    return method


def gives(value):
    return lambda *_: value


def hang(*_):
    import sitecustomize

    sitecustomize.hang()


COMPARED = ("__eq__", "__lt__", "__gt__", "__le__", "__ge__", "__bool__", "__format__", "__reduce__", "__round__")
Unprintable = odd(__str__=raises(), __repr__=raises())
HostileFloat = odd(
    float,
    __float__=raises(KeyError, "float"),
    __hash__=None,
    **dict.fromkeys(("__repr__", "__str__", *COMPARED), raises()),
)
HostileInt = odd(
    int,
    __float__=raises(KeyError, "int"),
    __index__=raises(KeyError),
    __repr__=raises(),
    __eq__=raises(),
    __hash__=None,
)
Meta = odd(type, __instancecheck__=raises(), __name__=property(raises(RuntimeError, "name")))
OddName = odd(type, __name__=property(raises()))

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
    "snan": Decimal("sNaN"),
    "decimal": Decimal("1"),
    "fraction": Fraction(1, 1),
    "hugefraction": Fraction(10**400, 1),
    "true": True,
    "huge": 10**400,
    "nan": float("nan"),
    "inf": float("inf"),
    "object": object(),
    "generator": (i for i in [1]),
    "type": type,
    "hostilestr": Unprintable(),
    "exitrepr": odd(__repr__=raises(SystemExit, 3))(),
    "nonstrrepr": odd(__repr__=gives(7))(),
    "bigrepr": odd(__repr__=lambda self: "x" * 20_000_000)(),
    "ctrlrepr": odd(__repr__=gives("\x1b[31m\ud800\x00\x1b]0;evil\x07"))(),
    "hostileclass": odd(__class__=property(raises(RuntimeError, "class")))(),
    "lyingclass": odd(__class__=float)(),
    "lyingclass2": odd(__class__=float, __float__=gives(1.0))(),
    "hostilefloat": HostileFloat(1.0),
    "strfloat": odd(float, __float__=gives("1.0"))(1.0),
    "floatoffloat": odd(float, __float__=lambda self: HostileFloat(1.0))(1.0),
    "hostileint": HostileInt(1),
    "boollike": odd(__bool__=raises(), __float__=gives(1.0))(),
    "zero": odd(shape=(), item=raises(SystemExit, "item"))(),  # like a scalar of numpy
    "zero2": odd(shape=(), item=lambda self: self, __repr__=raises(KeyboardInterrupt))(),
    "shaperaises": odd(shape=property(raises(KeyboardInterrupt, "shape")))(),
    "loop": odd(shape=(), item=gives([1, 2]))(),
    "getattr": odd(__getattr__=raises(ValueError))(),
    "withmeta": Meta("WithMeta", (), {})(),
    "hangingrepr": odd(__repr__=hang)(),
    "bigstr": "x" * 2_000_000,
    "ctrlstr": "\x1b]0;x\x07\ud800",
    "bigint": 10**5000,
}


def cyclic():
    a, b = ValueError("a"), ValueError("b")
    a.__cause__ = b
    b.__cause__ = a
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


def notes():
    e = ValueError("n")
    e.__notes__ = [Unprintable(), 5, "x" * 10_000_000]
    return e


def syn():
    e = SyntaxError("bad")
    e.filename = 5
    e.lineno = "x"
    e.text = Unprintable()
    e.offset = -3
    return e


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


def nameerr():
    e = NameError("name 'x' is not defined")
    e.name = Unprintable()
    return e


ERRORS = {
    "strraises": odd(Exception, __str__=raises(), __repr__=raises()),
    "strexits": odd(Exception, __str__=raises(SystemExit, 4)),
    "strgiga": odd(Exception, __str__=lambda self: "g" * 20_000_000),
    "strint": odd(Exception, __str__=gives(5)),
    "strctrl": odd(Exception, __str__=gives("\x1b[2J\x1b]0;evil\x07\ud800\x00")),
    "strhangs": odd(Exception, __str__=hang),
    "oddname": OddName("OddName", (Exception,), {}),
    "ownbase": odd(BaseException),
    "exit": lambda: SystemExit(5),
    "kbd": KeyboardInterrupt,
    "cancelled": lambda: asyncio.CancelledError("mine"),
    "stopiter": StopIteration,
    "cyclic": cyclic,
    "deepcause": deepcause,
    "deepgroup": deepgroup,
    "widegroup": lambda: ExceptionGroup("g", [ValueError(str(i)) for i in range(10_000)]),
    "notes": notes,
    "syn": syn,
    "oserr": lambda: OSError(Unprintable(), Unprintable(), Unprintable()),
    "deeptb": deeptb,
    "uni": lambda: UnicodeDecodeError("u", b"x" * 10_000_000, 0, 1, "r"),
    "nameerr": nameerr,
    "causes": odd(Exception, __cause__=property(raises())),
    "ctx": odd(Exception, __traceback__=property(raises())),
    "grp": lambda: odd(ExceptionGroup, exceptions=property(raises()))("g", [ValueError()]),
    "basegroup": lambda: BaseExceptionGroup("g", [KeyboardInterrupt(), SystemExit(3)]),
    "hashe": odd(Exception, __hash__=raises(), __eq__=raises(), __bool__=raises()),
    "dicte": odd(Exception, __getattribute__=raises()),
    "recursion": RecursionError,
    "timeout": TimeoutError,
}


def act(name):
    """Return the value of that name, or raise the error."""
    if name in VALUES:
        return VALUES[name]
    raise ERRORS[name]()
