"""Strips of neighbouring lanes as values of a kernel, which LLVM keeps in registers.

A sum over an inner loop of lanes, left to the vectoriser, is read from memory and written back at every term.
Held in a strip it stays in registers, which nearly doubles the speed of pairs and moves. Strips are added,
subtracted, multiplied and compared with each other or with a number. Their size is given in bytes, as a
constant: WIDE for one or two sums, NARROW for more, so that all of them fit into the sixteen registers of AVX2;
or by another strip, of which it takes the number of lanes.
"""

from __future__ import annotations

import operator
from typing import Any

import numba
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import intrinsic, lower_builtin, models, register_model

from occamap._kernels.jit import LANES

WIDE = 128
NARROW = 64
FAST = ("contract", "nsz", "nnan")
ELEMENTS = {types.float32: ir.FloatType(), types.float64: ir.DoubleType(), types.boolean: ir.IntType(1)}
ARITHMETIC = {
    operator.add: "fadd",
    operator.iadd: "fadd",
    operator.sub: "fsub",
    operator.mul: "fmul",
    operator.imul: "fmul",
    operator.truediv: "fdiv",
}
COMPARISONS = {
    operator.gt: ">",
    operator.ge: ">=",
    operator.lt: "<",
    operator.le: "<=",
    operator.eq: "==",
    operator.ne: "!=",
}


class Strip(types.Type):
    """The type of a strip: so many lanes of numbers, or of booleans."""

    def __init__(self, dtype: Any, count: int) -> None:
        self.dtype, self.count = dtype, count
        super().__init__(name=f"Strip({dtype}, {count})")


@register_model(Strip)
class _StripModel(models.PrimitiveModel):
    def __init__(self, manager: Any, strip: Strip) -> None:
        super().__init__(manager, strip, ir.VectorType(ELEMENTS[strip.dtype], strip.count))


def _strip_of(dtype: Any, size: Any) -> Strip:
    """The strip of this many bytes, or of as many lanes as another."""
    return Strip(dtype, size.count if isinstance(size, Strip) else 8 * size.literal_value // dtype.bitwidth)


def _spread(builder: Any, value: Any, kind: Any) -> Any:
    """A number in all lanes; a strip as it is."""
    if isinstance(value.type, ir.VectorType):
        return value
    one = builder.insert_element(ir.Constant(kind, ir.Undefined), value, ir.IntType(32)(0))
    lanes = ir.Constant(ir.VectorType(ir.IntType(32), kind.count), [0] * kind.count)
    return builder.shuffle_vector(one, ir.Constant(kind, ir.Undefined), lanes)


def _address(context: Any, builder: Any, array_type: Any, array: Any, row: Any, first: Any, kind: Any) -> Any:
    """Where lane `first` of this row of an array [row, lane] is."""
    base = context.make_array(array_type)(context, builder, array).data
    offset = builder.add(builder.mul(row, ir.IntType(64)(LANES)), first)
    return builder.bitcast(builder.gep(base, [offset]), kind.as_pointer())


def _intrinsic(builder: Any, name: str, value: Any) -> Any:
    """LLVM's function of this name, lane by lane."""
    bits = 32 if value.type.element == ir.FloatType() else 64
    declared = ir.FunctionType(value.type, [value.type])
    called = cgutils.get_or_insert_function(builder.module, declared, f"llvm.{name}.v{value.type.count}f{bits}")
    return builder.call(called, [value])


def _pair(args: tuple[Any, ...]) -> Strip | None:
    """The type of the strip in an operation of two strips, or of a strip and a number of its precision."""
    if len(args) != 2 or not any(isinstance(arg, Strip) for arg in args):
        return None
    strip: Strip = next(arg for arg in args if isinstance(arg, Strip))
    return strip if all(arg in (strip, strip.dtype) for arg in args) else None


class _Arithmetic(AbstractTemplate):
    def generic(self, args: Any, kws: Any) -> Any:
        strip = _pair(args)
        return None if strip is None else signature(strip, *args)


class _Comparison(AbstractTemplate):
    def generic(self, args: Any, kws: Any) -> Any:
        strip = _pair(args)
        return None if strip is None else signature(Strip(types.boolean, strip.count), *args)


def _lower(function: Any, template: Any, emit: Any) -> None:
    infer_global(function)(type(f"_{function.__name__}", (template,), {"key": function}))

    def operation(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        kind = context.get_value_type(_pair(sig.args))
        return emit(builder, *(_spread(builder, arg, kind) for arg in args))

    for operands in (Strip, Strip), (Strip, types.Float), (types.Float, Strip):
        lower_builtin(function, *operands)(operation)


def _emit_arithmetic(name: str) -> Any:
    return lambda builder, a, b: getattr(builder, name)(a, b, flags=FAST)


def _emit_comparison(sign: str) -> Any:
    return lambda builder, a, b: builder.fcmp_ordered(sign, a, b, flags=FAST)


for _function, _name in ARITHMETIC.items():
    _lower(_function, _Arithmetic, _emit_arithmetic(_name))
for _function, _sign in COMPARISONS.items():
    _lower(_function, _Comparison, _emit_comparison(_sign))


@intrinsic(prefer_literal=True)
def strips(typing, array, size):
    """How many strips of this size the lanes of an array [row, lane] make."""
    count = _strip_of(array.dtype, size).count
    return types.int64(array, size), lambda context, builder, sig, args: ir.IntType(64)(LANES // count)


@intrinsic(prefer_literal=True)
def load(typing, array, row, strip, size):
    """Strip number `strip` of array[row]."""

    def emit(context, builder, sig, args):
        kind = context.get_value_type(sig.return_type)
        first = builder.mul(args[2], ir.IntType(64)(kind.count))
        where = _address(context, builder, sig.args[0], args[0], args[1], first, kind)
        return builder.load(where, align=array.dtype.bitwidth // 8)

    return _strip_of(array.dtype, size)(array, types.int64, types.int64, size), emit


@intrinsic
def store(typing, array, row, strip, value):
    """array[row] = value over these lanes, in the precision of the strip."""

    def emit(context, builder, sig, args):
        kind = args[3].type
        first = builder.mul(args[2], ir.IntType(64)(kind.count))
        builder.store(args[3], _address(context, builder, sig.args[0], args[0], args[1], first, kind), align=4)
        return context.get_dummy_value()

    return types.void(array, types.int64, types.int64, value), emit


@intrinsic
def accumulate(typing, array, row, strip, value):
    """array[row] += value over these lanes; the array is float64, whatever the strip is."""

    def emit(context, builder, sig, args):
        wide = ir.VectorType(ir.DoubleType(), sig.args[3].count)
        first = builder.mul(args[2], ir.IntType(64)(wide.count))
        where = _address(context, builder, sig.args[0], args[0], args[1], first, wide)
        value = args[3] if args[3].type == wide else builder.fpext(args[3], wide)
        builder.store(builder.fadd(builder.load(where, align=8), value), where, align=8)
        return context.get_dummy_value()

    return types.void(array, types.int64, types.int64, value), emit


@intrinsic(prefer_literal=True)
def spread(typing, number, size):
    """The strip that has this number in all lanes."""

    def emit(context, builder, sig, args):
        return _spread(builder, args[0], context.get_value_type(sig.return_type))

    return _strip_of(number, size)(number, size), emit


@intrinsic
def select(typing, condition, yes, no):
    """Lane by lane `yes` where the condition holds, else `no`; either may be a number."""
    strip = yes if isinstance(yes, Strip) else no

    def emit(context, builder, sig, args):
        kind = context.get_value_type(sig.return_type)
        return builder.select(args[0], *(_spread(builder, arg, kind) for arg in args[1:]))

    return strip(condition, yes, no), emit


@intrinsic
def widen(typing, strip):
    """The strip in float64."""

    def emit(context, builder, sig, args):
        return args[0] if strip.dtype == types.float64 else builder.fpext(args[0], context.get_value_type(wide))

    wide = Strip(types.float64, strip.count)
    return wide(strip), emit


@intrinsic
def like(typing, strip, other):
    """The strip in the precision of another, which is not the higher one."""

    def emit(context, builder, sig, args):
        return args[0] if strip.dtype == other.dtype else builder.fptrunc(args[0], args[1].type)

    return other(strip, other), emit


@intrinsic
def bits(typing, condition):
    """A condition as an integer: bit i is lane i."""

    def emit(context, builder, sig, args):
        return builder.zext(builder.bitcast(args[0], ir.IntType(condition.count)), ir.IntType(64))

    return types.uint64(condition), emit


@intrinsic
def lowest(typing, number):
    """The position of the lowest bit that is set."""
    return types.int64(number), lambda context, builder, sig, args: builder.cttz(args[0], ir.IntType(1)(1))


@intrinsic
def magnitude(typing, strip):
    """|strip|"""
    return strip(strip), lambda context, builder, sig, args: _intrinsic(builder, "fabs", args[0])


@intrinsic
def root(typing, strip):
    """√strip"""
    return strip(strip), lambda context, builder, sig, args: _intrinsic(builder, "sqrt", args[0])


@numba.njit(inline="always")
def least(a, b):
    """The smaller of a strip and a strip or number."""
    return select(a < b, a, b)


@numba.njit(inline="always")
def greatest(a, b):
    return select(a > b, a, b)
