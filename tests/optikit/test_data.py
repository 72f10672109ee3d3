"""Readers say what is wrong and where; labels and features are prepared as the margin theory wants them."""

import bz2
import gzip

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from scipy.optimize import nnls

from optikit.arrays import from_numpy, to_numpy
from optikit.data import (
    Table,
    add_bias,
    code_labels,
    normalize_rows_max,
    prepare_features,
    read_data,
    row_norms,
    standardize,
)


def write(tmp_path, name, text):
    path = tmp_path / name
    path.write_text(text)
    return path


# -- svmlight -----------------------------------------------------------------------------


def test_svmlight_counts_from_one_unless_a_zero_occurs(tmp_path):
    one = read_data(write(tmp_path, "a.svm", "1 1:0.5 3:2\n-1 2:1 # a comment\n"))
    zero = read_data(write(tmp_path, "b.svm", "1 0:0.5 2:2\n-1 1:1\n"))
    expected = [[0.5, 0, 2], [0, 1, 0]]
    np.testing.assert_array_equal(one.features.toarray(), expected)
    np.testing.assert_array_equal(zero.features.toarray(), expected)
    np.testing.assert_array_equal(one.targets, [1.0, -1.0])
    assert one.is_sparse
    assert one.density == 0.5
    assert "2 samples, 3 features" in repr(one)


def test_svmlight_base_and_width_can_be_given(tmp_path):
    path = write(tmp_path, "a.svm", "1 1:0.5\n-1 2:1\n")
    assert read_data(path, zero_based=True).n_features == 3
    assert read_data(path, n_features=7).n_features == 7


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 1:1\n-1 2:x\n", r"line 2: the value of '2:x'"),
        ("1 1:1\n\nyes 2:1\n", r"line 3: the target 'yes'"),
        ("1 1:1 7\n", r"line 1: '7' is not of the form index:value"),
        ("1 1:1\n1 3:1 2:1\n", r"line 2: indices must increase, got 2 after 3"),
        ("1 1:1\n1 2:nan\n", r"line 2: the value of '2:nan' is not a finite number"),
        ("inf 1:1\n", r"line 1: the target 'inf'"),
        ("1 a:1\n", r"line 1: the index of 'a:1'"),
        ("1\n-1\n", r"holds no features"),
        ("", r"holds no data"),
        ("# only a comment\n\n", r"holds no data"),
    ],
)
def test_bad_svmlight_is_named_by_line(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        read_data(write(tmp_path, "bad.svm", text))


def test_svmlight_index_outside_the_asked_width_is_named(tmp_path):
    path = write(tmp_path, "a.svm", "1 1:1\n-1 5:1\n")
    with pytest.raises(ValueError, match=r"line 2: index 5 does not fit n_features=3"):
        read_data(path, n_features=3)
    with pytest.raises(ValueError, match=r"line 1: index 0"):
        read_data(write(tmp_path, "b.svm", "1 0:1\n"), zero_based=False)


@pytest.mark.parametrize("module", [gzip, bz2])
def test_compressed_files_are_read(tmp_path, module):
    suffix = {gzip: "gz", bz2: "bz2"}[module]
    for name, text in (("a.svm", "1 1:2\n-1 1:3\n"), ("a.csv", "x,y\n2,1\n3,-1\n")):
        path = tmp_path / f"{name}.{suffix}"
        with module.open(path, "wt") as stream:
            stream.write(text)
        table = read_data(path)
        dense = table.features.toarray() if table.is_sparse else table.features
        np.testing.assert_array_equal(dense, [[2.0], [3.0]])


@pytest.mark.parametrize("name", ["a.csv.gz", "a.svm.gz"])
def test_a_file_that_is_not_gzip_is_named(tmp_path, name):
    with pytest.raises(ValueError, match="cannot be read"):
        read_data(write(tmp_path, name, "1,2\n"))


# -- csv ------------------------------------------------------------------------------------


def test_csv_target_is_the_named_column_or_the_last(tmp_path):
    path = write(tmp_path, "a.csv", "age,label,height\n1,0,2\n3,1,4\n")
    table = read_data(path)
    assert table.target_name == "label"
    assert table.feature_names == ("age", "height")
    np.testing.assert_array_equal(table.features, [[1, 2], [3, 4]])
    assert read_data(path, target="age").feature_names == ("label", "height")
    assert read_data(path, target=-1).target_name == "height"
    assert read_data(path, target="0").target_name == "age"
    bare = read_data(write(tmp_path, "b.csv", "1,2,0\n3,4,1\n"))
    np.testing.assert_array_equal(bare.targets, [0.0, 1.0])
    assert bare.feature_names == ("x0", "x1")


def test_class_names_may_stand_in_the_target_column_only(tmp_path):
    for text in ("a,b,kind\n1,2,cat\n3,4,dog\n", "1,2,cat\n3,4,dog\n"):
        table = read_data(write(tmp_path, "a.csv", text))
        assert list(table.targets) == ["cat", "dog"]
        np.testing.assert_array_equal(code_labels(table.targets, positive="cat"), [1.0, -1.0])
    with pytest.raises(ValueError, match=r"line 3, column 'a': 'x' is not a number"):
        read_data(write(tmp_path, "b.csv", "a,b\n1,2\nx,3\n"))


def test_tab_separated_values_are_read(tmp_path):
    table = read_data(write(tmp_path, "a.tsv", "u\ty\n0.5\t1\n1.5\t0\n"))
    np.testing.assert_array_equal(table.features, [[0.5], [1.5]])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b,y\n1,2,0\n1,2\n", r"line 3: 2 fields where the first line has 3"),
        ("a,b,y\n1,2,0\n\n1,2,3,4\n", r"line 4: 4 fields where the first line has 3"),
        ("1,2,0\n1,2,3,4\n", r"line 2: 4 fields"),
        ("a,b,y\n1,,0\n", r"line 2, column 'b': missing value"),
        ("a,b,y\n1,2,0\n1,inf,0\n", r"line 3, column 'b': 'inf' is not finite"),
        ("a,b,y\n1,2,0\n1,3,nan\n", r"line 3, column 'y': 'nan' is not finite"),
        ("a,a,y\n1,2,0\n", r"column name 'a' occurs more than once"),
        ("a,b,y\n", r"holds no data"),
        ("", r"holds no data"),
        ("y\n1\n2\n", r"no feature column"),
    ],
)
def test_bad_csv_is_named_by_line_and_column(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        read_data(write(tmp_path, "bad.csv", text))


@pytest.mark.parametrize("target", ["weight", 9, -5])
def test_a_target_that_is_no_column_is_named(tmp_path, target):
    with pytest.raises(ValueError, match="target must be a column"):
        read_data(write(tmp_path, "a.csv", "a,y\n1,2\n"), target=target)


# -- npz ------------------------------------------------------------------------------------


def test_npz_holds_X_and_y_or_a_named_target(tmp_path):
    X, y = np.arange(6).reshape(3, 2), np.array([0, 1, 1])
    np.savez(tmp_path / "a.npz", X=X, y=y, z=-y)
    table = read_data(tmp_path / "a.npz")
    np.testing.assert_array_equal(table.features, X)
    assert table.features.dtype == np.float64
    np.testing.assert_array_equal(read_data(tmp_path / "a.npz", target="z").targets, -y)


def test_npz_keeps_single_precision(tmp_path):
    np.savez(tmp_path / "a.npz", X=np.ones((2, 2), np.float32), y=[0, 1])
    assert read_data(tmp_path / "a.npz").features.dtype == np.float32


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"X": np.ones((2, 2))}, "no array 'y'; it has X"),
        ({"X": np.array([[1, "a"]], dtype=object), "y": [1]}, "'X' holds Python objects"),
        ({"X": np.ones(3), "y": np.ones(3)}, "X must be a real matrix"),
        ({"X": np.ones((3, 1)) * 1j, "y": np.ones(3)}, "X must be a real matrix"),
        ({"X": np.ones((3, 1)), "y": np.ones((3, 1))}, "y must be a vector"),
        ({"X": np.ones((3, 1)), "y": np.ones(2)}, "X has 3 rows but y has 2"),
        ({"X": np.array([[1.0], [np.nan]]), "y": np.ones(2)}, "X is not finite in row 1"),
        ({"X": np.ones((2, 1)), "y": np.array([0.0, np.inf])}, "y is not finite in row 1"),
        ({"X": np.ones((0, 1)), "y": np.ones(0)}, "holds no data"),
    ],
)
def test_bad_npz_is_named_by_array(tmp_path, arrays, message):
    np.savez(tmp_path / "bad.npz", **arrays)
    with pytest.raises(ValueError, match=message):
        read_data(tmp_path / "bad.npz")


def test_a_file_that_is_no_archive_is_named(tmp_path):
    with pytest.raises(ValueError, match="not an npz archive"):
        read_data(write(tmp_path, "a.npz", "hello"))
    np.save(tmp_path / "bare.npy", np.ones(3))
    (tmp_path / "bare.npy").rename(tmp_path / "bare.npz")
    with pytest.raises(ValueError, match="one bare array"):
        read_data(tmp_path / "bare.npz")


# -- any format -----------------------------------------------------------------------------


def test_the_format_is_read_from_the_first_line_when_the_name_does_not_say(tmp_path):
    assert read_data(write(tmp_path, "mushrooms", "1 3:1\n2 4:1\n")).is_sparse
    assert read_data(write(tmp_path, "table.txt", "1,2\n3,4\n")).n_features == 1
    assert read_data(write(tmp_path, "tabs", "1\t2\n3\t4\n")).n_features == 1
    np.savez(tmp_path / "a.npz", X=np.ones((2, 1)), y=[0, 1])
    (tmp_path / "a.npz").rename(tmp_path / "archive")
    assert read_data(tmp_path / "archive").n_samples == 2
    with pytest.raises(ValueError, match=r"format of .* is not clear"):
        read_data(write(tmp_path, "prose", "hello world\n"))


def test_impossible_requests_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="does not exist"):
        read_data(tmp_path / "nothing.csv")
    with pytest.raises(ValueError, match="is a directory"):
        read_data(tmp_path)
    path = write(tmp_path, "a.csv", "a,y\n1,2\n")
    with pytest.raises(ValueError, match="format must be one of"):
        read_data(path, format="excel")
    with pytest.raises(ValueError, match="svmlight files"):
        read_data(path, zero_based=True)
    with pytest.raises(ValueError, match="target must be None"):
        read_data(write(tmp_path, "a.svm", "1 1:1\n"), target="y")
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00\x01")
    with pytest.raises(ValueError, match="not a text file"):
        read_data(tmp_path / "binary.csv")


@given(
    st.lists(st.tuples(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6), st.integers(0, 1)), min_size=1, max_size=8)
)
def test_a_table_written_as_csv_and_as_svmlight_is_read_back(tmp_path_factory, rows):
    folder = tmp_path_factory.mktemp("tables")
    csv = write(folder, "a.csv", "".join(f"{a!r},{b!r},{y}\n" for a, b, y in rows))
    svm = write(folder, "a.svm", "".join(f"{y} 1:{a!r} 2:{b!r}\n" for a, b, y in rows))
    expected = np.array([row[:2] for row in rows])
    np.testing.assert_allclose(read_data(csv).features, expected, rtol=1e-14, atol=1e-300)
    np.testing.assert_allclose(read_data(svm).features.toarray(), expected, rtol=1e-14, atol=1e-300)


# -- labels ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "labels", [[0, 1, 1], [-1, 1, 1], [False, True, True], ["no", "yes", "yes"], [3.0, 8.0, 8.0]]
)
def test_two_labels_keep_their_order(labels):
    np.testing.assert_array_equal(code_labels(labels), [-1.0, 1.0, 1.0])
    np.testing.assert_array_equal(code_labels(labels, coding="01"), [0.0, 1.0, 1.0])


def test_one_class_is_set_against_the_rest():
    np.testing.assert_array_equal(code_labels([0, 1, 2], positive=1), [-1.0, 1.0, -1.0])
    np.testing.assert_array_equal(code_labels([0, 1, 2], positive="1"), [-1.0, 1.0, -1.0])


@pytest.mark.parametrize(
    ("labels", "options", "message"),
    [
        ([1, 1], {}, "two classes, got the one class 1"),
        ([0, 1, 2], {}, r"got 3 \(0, 1, 2\)"),
        ([0, 1], {"positive": 7}, "positive must be one of the labels 0, 1, got 7"),
        ([0, 1], {"positive": "cat"}, "positive must be one of"),
        ([0.0, np.nan], {}, "labels must be finite, got nan in row 1"),
        ([], {}, "non-empty vector"),
        ([[0, 1]], {}, "non-empty vector"),
        ([0, 1], {"coding": "onehot"}, "coding must be one of"),
    ],
)
def test_bad_labels_are_named(labels, options, message):
    with pytest.raises(ValueError, match=message):
        code_labels(labels, **options)


# -- features -------------------------------------------------------------------------------


def test_bias_is_the_mean_row_norm_or_the_given_number(xp):
    X = from_numpy(np.array([[3.0, 4.0], [0.0, 1.0]]), xp)
    np.testing.assert_array_equal(to_numpy(add_bias(X)), [[3, 4, 3], [0, 1, 3]])
    np.testing.assert_array_equal(to_numpy(add_bias(X, 1.0)), [[3, 4, 1], [0, 1, 1]])


def test_rows_are_divided_by_the_largest_norm(xp):
    scaled, largest = normalize_rows_max(from_numpy(np.array([[3.0, 4.0], [0.0, 1.0]]), xp))
    assert largest == 5.0
    np.testing.assert_allclose(to_numpy(row_norms(scaled)), [1.0, 0.2], rtol=1e-15)


def test_standardized_columns_have_mean_zero_and_deviation_one(xp):
    X = np.array([[1.0, 5.1, 0.1], [2.0, 5.1, 0.1], [4.0, 5.1, 0.1]])
    Z, mean, scale = (to_numpy(a) for a in standardize(from_numpy(X, xp)))
    np.testing.assert_allclose(Z.mean(axis=0), 0.0, atol=1e-15)
    np.testing.assert_allclose(Z.std(axis=0)[0], 1.0, rtol=1e-15)
    np.testing.assert_array_equal(scale[1:], 1.0)
    np.testing.assert_allclose(Z * scale + mean, X, rtol=1e-15)


def test_sparse_features_are_prepared_like_dense_ones():
    X = np.array([[0.0, 2.0], [1.0, 0.0], [0.0, 0.0]])
    dense, largest = prepare_features(X)
    stored, same = prepare_features(sparse.csr_array(X))
    assert same == largest
    np.testing.assert_allclose(stored.toarray(), dense, rtol=1e-15)
    with pytest.raises(TypeError, match="dense to be standardized"):
        standardize(sparse.csr_array(X))


def test_features_that_cannot_be_prepared_are_named():
    with pytest.raises(ValueError, match="non-zero row"):
        normalize_rows_max(np.zeros((2, 2)))
    with pytest.raises(ValueError, match="rows and columns"):
        add_bias(np.zeros((0, 2)))
    with pytest.raises(ValueError, match="value must be a finite number"):
        add_bias(np.ones((1, 2)), np.inf)


def margin(Z):
    """Largest margin through the origin by least-distance programming (Lawson and Hanson)."""
    E = np.vstack([Z.T, np.ones(len(Z))])
    f = np.zeros(len(E))
    f[-1] = 1.0
    alpha, _ = nnls(E, f, maxiter=50 * len(Z))
    rho = E @ alpha - f
    return 1.0 / np.linalg.norm(rho[:-1] / rho[-1])


@pytest.mark.parametrize(
    ("dataset", "keep", "positive", "standardized", "expected"),
    [
        ("digits", (0, 1), 0, False, 0.097753),
        ("digits", (3, 8), 3, False, 0.034572),
        ("iris", (0, 1, 2), 0, True, 0.156805),
        ("wine", (0, 1, 2), 0, True, 0.065496),
    ],
)
def test_prepared_real_data_have_the_published_margins(dataset, keep, positive, standardized, expected):
    """Expected values: measured margins of the Local GD specification, section 6."""
    from sklearn import datasets

    raw = getattr(datasets, f"load_{dataset}")()
    rows = np.isin(raw.target, keep)
    X, _ = prepare_features(raw.data[rows], standardized=standardized)
    y = code_labels(raw.target[rows], positive=positive)
    assert margin(X * y[:, None]) == pytest.approx(expected, abs=1e-6)


def test_a_table_knows_its_size():
    table = Table(np.ones((2, 3)), np.ones(2), ("a", "b", "c"))
    assert (table.n_samples, table.n_features, table.is_sparse, table.density) == (2, 3, False, 1.0)
    assert "dense" in repr(table)
