// How a surface looks: a colour per vertex, sharp classes or a checker from the reference, in soft light.

import { DoubleSide, ShaderMaterial } from "three";

const VERTEX = /* glsl */ `
attribute vec4 colour; // the fourth is the number of the vertex's class, where classes are shown
attribute vec3 place; // where this vertex lies on the reference, in cells of the checker
varying vec3 vColour;
varying vec3 vPlace;
varying vec3 vNormal;
varying vec2 vClass; // the number and its square, mixed like the colour
flat varying vec4 vOwn; // of one corner, not mixed
void main() {
  vOwn = vec4(colour.rgb, 255.0 * colour.a);
  vClass = vec2(vOwn.a, vOwn.a * vOwn.a);
  vColour = colour.rgb;
  vPlace = place;
  vNormal = normalMatrix * normal;
  gl_Position = projectionMatrix * modelViewMatrix * vec4(position, 1.0);
}`;

const FRAGMENT = /* glsl */ `
uniform float textured;
uniform float classes;
uniform float glow;
varying vec3 vColour;
varying vec3 vPlace;
varying vec3 vNormal;
varying vec2 vClass;
flat varying vec4 vOwn;
const float PI = 3.14159265;

// Square waves whose flanks are one pixel wide, so that the checker does not shimmer.
float checker(vec3 place) {
  vec3 wave = clamp(sin(PI * place) / (PI * fwidth(place) + 1e-4), -1.0, 1.0);
  return 0.5 + 0.5 * wave.x * wave.y * wave.z;
}

// Between two classes a triangle is cut in the middle instead of blended. With shares s of class b and 1 - s
// of our corner's class a, the mixed number is a + s (b - a) and the mixed square a² + s (b² - a²):
// what they exceed a and a² by has the ratio a + b, which tells b, and so s and b's own colour.
vec3 sharp() {
  float a = vOwn.a;
  float more = vClass.x - a;
  float apart = (vClass.y - a * a) / (abs(more) < 1e-3 ? 1e-3 : more) - 2.0 * a;
  float share = abs(more) < 1e-3 ? 0.0 : clamp(more / apart, 1e-3, 1.0);
  float width = fwidth(share);
  vec3 other = clamp(vOwn.rgb + (vColour - vOwn.rgb) / max(share, 1e-3), 0.0, 1.0);
  return mix(vOwn.rgb, other, smoothstep(0.5 - width, 0.5 + width, share));
}

void main() {
  vec3 normal = normalize(vNormal);
  if (!gl_FrontFacing) normal = -normal;
  vec3 base = classes > 0.5 ? sharp() : vColour;
  if (textured > 0.5) base = mix(0.42 * base, mix(base, vec3(1.0), 0.3), checker(vPlace));
  float key = max(0.0, dot(normal, vec3(-0.36, 0.58, 0.73)));
  float fill = 0.5 + 0.5 * dot(normal, vec3(0.74, -0.18, 0.65));
  float rim = pow(1.0 - abs(normal.z), 3.0);
  gl_FragColor = vec4(base * (0.46 + 0.5 * key + 0.16 * fill) + rim * glow, 1.0);
}`;

export function surfaceMaterial(): ShaderMaterial {
  return new ShaderMaterial({
    vertexShader: VERTEX,
    fragmentShader: FRAGMENT,
    side: DoubleSide,
    uniforms: { textured: { value: 0 }, classes: { value: 0 }, glow: { value: 0.1 } },
  });
}
